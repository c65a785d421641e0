package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// traceBegin is the start of traces without absolute times. It is midnight on a Monday.
var traceBegin = time.Date(1970, 1, 5, 0, 0, 0, 0, time.UTC)

func newWorkload(t cmdutil.Terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workload",
		Short: "Convert and generate job traces, and create Kubernetes Jobs from them",
		Example: `  kubenergy workload convert hpc2n.swf.gz > jobs.csv
  kubenergy workload fit hpc2n.swf.gz > model.json
  kubenergy workload generate --model model.json --jobs 1000 --seed 7 > jobs.csv
  kubenergy workload manifests jobs.csv --time-scale 60 --limit 100 | kubectl create -f -`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConvert(t), newFit(t), newGenerate(t), newManifests(t))
	return cmd
}

// traceFlags select the format of a trace and the handling of invalid rows.
type traceFlags struct {
	format, zone string
	skipBad      bool
}

func (f *traceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", "",
		"format of the trace: "+strings.Join(workload.Formats(), ", ")+" (default: detected)")
	cmd.Flags().StringVar(&f.zone, "time-zone", "", timeZoneUsage)
	cmd.Flags().BoolVar(&f.skipBad, "skip-bad", false, skipBadUsage)
}

const timeZoneUsage = "time zone of local times in a trace of sacct, e.g. Europe/Berlin"

const skipBadUsage = "skip invalid rows of the trace and report their number, instead of failing on the first one"

const jobsUsage = "maximum number of jobs, from the start of the trace; 0 for the number in the file, or all"

// oneFile requires exactly one argument, the name of a file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cmdutil.UsageErrorf("want exactly one file, e.g. %s jobs.csv", cmd.CommandPath())
	}
	return nil
}

// read reads a trace and prints a summary including skipped rows.
func (f *traceFlags) read(t cmdutil.Terminal, path string) (*workload.Trace, error) {
	if err := workload.CheckFormat(f.format); err != nil {
		return nil, cmdutil.UsageErrorf("--format: %w", err)
	}
	trace, err := workload.LoadWith(path, workload.Options{
		Format: f.format, Start: traceBegin, Zone: f.zone, SkipBad: f.skipBad,
	})
	if err == nil && f.zone != "" && trace.Format != workload.FormatSacct {
		err = fmt.Errorf("--time-zone: the format %s has no local times", trace.Format)
	}
	if err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	fmt.Fprintf(t.Err, "%s: %d jobs, format %s\n", path, len(trace.Jobs), trace.Format)
	for _, line := range trace.LeftOut() {
		fmt.Fprintf(t.Err, "%s: %s\n", path, line)
	}
	return trace, nil
}

// first returns the submission time of the first job.
func first(jobs []sched.Job) time.Time {
	return slices.MinFunc(jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) }).Submitted
}

func newConvert(t cmdutil.Terminal) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "convert FILE",
		Short: "Convert a trace to CSV, with the first job at time 0",
		Example: `  kubenergy workload convert hpc2n.swf.gz > jobs.csv
  kubenergy workload convert --format gaia-hours pai-100k.csv.gz > jobs.csv`,
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			trace, err := f.read(t, args[0])
			if err != nil {
				return err
			}
			begin := first(trace.Jobs)
			if trace.Dated {
				fmt.Fprintf(t.Err, "%s: time 0 is %s, the submission of the first job\n", args[0],
					begin.UTC().Format(time.RFC3339Nano))
			}
			return writeTrace(t.Out, trace, begin)
		},
	}
	f.add(cmd)
	return cmd
}

// writeTrace writes jobs as CSV. The output is buffered, because the table is written line by line.
func writeTrace(w io.Writer, trace *workload.Trace, start time.Time) error {
	out := bufio.NewWriter(w)
	if err := trace.WriteCSV(out, start); err != nil {
		return err
	}
	return out.Flush()
}

func newFit(t cmdutil.Terminal) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:     "fit FILE",
		Short:   "Fit a model to a trace and print it as JSON",
		Example: "  kubenergy workload fit hpc2n.swf.gz > model.json",
		Args:    oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			trace, err := f.read(t, args[0])
			if err != nil {
				return err
			}
			m, err := fitted(trace.Jobs)
			if err != nil {
				return err
			}
			out := json.NewEncoder(t.Out)
			out.SetIndent("", " ")
			return out.Encode(m)
		},
	}
	f.add(cmd)
	return cmd
}

func fitted(jobs []sched.Job) (*workload.Model, error) {
	// The table may be unsorted.
	slices.SortStableFunc(jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
	m, err := workload.Fit(jobs)
	return m, cmdutil.NewUsageError(err)
}

type generateFlags struct {
	traceFlags
	model, like string
	jobs        int
	seed        uint64
}

func newGenerate(t cmdutil.Terminal) *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use:   "generate (--model FILE | --like TRACE)",
		Short: "Generate a trace that is similar to another one",
		Long: `Generate a trace that is similar to another one and print it as CSV. Submissions follow the hours of
the week, requests and run times are sampled jointly, and owners are sampled by rank. The trace starts on a Monday at
midnight. The same model, number of jobs and seed result in the same trace.`,
		Example: `  kubenergy workload generate --model model.json --jobs 1000 --seed 7 > jobs.csv
  kubenergy workload generate --like hpc2n.swf.gz --jobs 10000 > jobs.csv`,
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			m, err := f.read(t)
			if err != nil {
				return err
			}
			jobs, err := m.Generate(f.seed, f.jobs, traceBegin)
			if err != nil {
				return cmdutil.NewUsageError(err)
			}
			return writeTrace(t.Out, &workload.Trace{Jobs: jobs}, traceBegin)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "file with a model written by fit")
	flags.StringVar(&f.like, "like", "", "trace to fit a model to")
	flags.IntVar(&f.jobs, "jobs", 1000, "number of jobs")
	flags.Uint64Var(&f.seed, "seed", 1, "random seed of the trace")
	return cmd
}

const maxGenerated = 10_000_000

func (f *generateFlags) read(t cmdutil.Terminal) (*workload.Model, error) {
	switch {
	case (f.model == "") == (f.like == ""):
		return nil, cmdutil.UsageErrorf("specify exactly one of --model and --like")
	case f.jobs < 1 || f.jobs > maxGenerated:
		return nil, cmdutil.UsageErrorf("--jobs is %d: want 1 to %d", f.jobs, maxGenerated)
	case f.like != "":
		trace, err := f.traceFlags.read(t, f.like)
		if err != nil {
			return nil, err
		}
		return fitted(trace.Jobs)
	}
	text, err := os.ReadFile(f.model)
	if err != nil {
		return nil, cmdutil.UsageErrorf("reading workload model: %w", err)
	}
	m := &workload.Model{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, cmdutil.UsageErrorf("%s: %w", f.model, err)
	}
	return m, nil
}

type manifestFlags struct {
	traceFlags
	namespace, image, scheduler, load, prefix string
	scale                                     float64
	delay                                     time.Duration
	limit                                     int
}

func newManifests(t cmdutil.Terminal) *cobra.Command {
	var f manifestFlags
	cmd := &cobra.Command{
		Use:   "manifests FILE",
		Short: "Convert the jobs of a trace to manifests of Kubernetes Jobs",
		Long: `Convert the jobs of a trace to manifests of Kubernetes Jobs, one YAML document per job, with requests,
run time and allowed delay. The pods sleep, use the requested CPU and memory (--load stress, requires the image of this
program), or run on the simulated nodes of kubenergy-lab (--load lab). A comment contains the submission time of each
job. If all Jobs are created together, the queue is full.`,
		Example: `  kubenergy workload manifests jobs.csv --time-scale 60 --limit 100 | kubectl create -f -
  kubenergy workload manifests pai_1k.csv.gz --namespace gaia --load stress \
      --image registry.example/kubenergy/kubenergy:v1`,
		Args:    oneFile,
		PreRunE: func(*cobra.Command, []string) error { return cmdutil.NewUsageError(f.check()) },
		RunE: func(_ *cobra.Command, args []string) error {
			trace, err := f.read(t, args[0])
			if err != nil {
				return err
			}
			return f.write(t.Out, trace.Jobs)
		},
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the Jobs (default: namespace of kubectl)")
	flags.StringVar(&f.image, "image", "",
		"image of the pods (default: busybox; --load stress requires the image of this program)")
	flags.StringVar(&f.scheduler, "scheduler", policy.SchedulerName, "scheduler name of the pods")
	flags.StringVar(&f.load, "load", "sleep", "load of the pods: sleep, stress or lab")
	flags.StringVar(&f.prefix, "name-prefix", "trace", "prefix of the names of the Jobs")
	flags.Float64Var(&f.scale, "time-scale", 1, "acceleration factor: run times and delays are divided by it")
	flags.DurationVar(&f.delay, "max-delay", 0, "allowed delay of jobs without a delay in the trace, e.g. 6h; "+
		"scaled like the other times")
	flags.IntVar(&f.limit, "limit", 0, "maximum number of jobs (0: all)")
	return cmd
}

const maxNamePrefix = 40 // names of pods consist of the Job's name and a suffix

func (f *manifestFlags) check() error {
	switch {
	case !slices.Contains([]string{"sleep", "stress", "lab"}, f.load):
		return fmt.Errorf("--load is %q: want sleep, stress or lab", f.load)
	case f.load == "stress" && f.image == "":
		return errors.New("--load stress requires --image with the image of this program")
	case !(f.scale > 0 && f.scale <= 1e6):
		return fmt.Errorf("--time-scale is %v: want more than 0 and at most 1000000", f.scale)
	case f.delay < 0:
		return fmt.Errorf("--max-delay is %v: want 0 or more", f.delay)
	case f.limit < 0:
		return fmt.Errorf("--limit is %d: want 0 or more", f.limit)
	case f.prefix == "" || len(f.prefix) > maxNamePrefix || workload.LabelName(f.prefix) != f.prefix:
		return fmt.Errorf("--name-prefix is %q: want at most %d lower-case letters, digits and dashes", f.prefix,
			maxNamePrefix)
	}
	f.image = cmp.Or(f.image, "busybox")
	return nil
}

func (f *manifestFlags) write(w io.Writer, jobs []sched.Job) error {
	out := bufio.NewWriter(w)
	begin, digits := first(jobs), len(strconv.Itoa(len(jobs)))
	if f.limit > 0 {
		jobs = jobs[:min(len(jobs), f.limit)]
	}
	for i, j := range jobs {
		text, err := manifest(f.job(fmt.Sprintf("%s-%0*d", f.prefix, digits, i+1), &j))
		if err != nil {
			return fmt.Errorf("encoding job %q: %w", j.ID, err)
		}
		fmt.Fprintf(out, "---\n# job %q, submitted after %v\n%s", j.ID, f.shrink(j.Submitted.Sub(begin)), text)
	}
	return out.Flush()
}

// shrink scales a duration of the trace by the time scale, rounded to milliseconds.
func (f *manifestFlags) shrink(d time.Duration) time.Duration {
	return time.Duration(float64(d) / f.scale).Round(time.Millisecond)
}

func (f *manifestFlags) job(name string, j *sched.Job) *batchv1.Job {
	job := kube.TraceJob(name, j, f.shrink)
	job.Namespace = f.namespace
	delay := j.AllowedDelay
	if delay == workload.NoDelayGiven {
		delay = f.delay
	}
	if delay > 0 {
		job.Annotations[v1alpha1.AnnotationAllowedDelay] = f.shrink(delay).String()
	}
	job.Labels = map[string]string{"app.kubernetes.io/name": "trace-job", "app.kubernetes.io/part-of": f.prefix}
	for key, value := range map[string]string{"trace-owner": j.Owner, "trace-queue": j.Queue} {
		if value = workload.LabelName(value); value != "" {
			job.Labels[key] = value
		}
	}
	pod := &job.Spec.Template
	pod.Spec.SchedulerName = f.scheduler
	container := &pod.Spec.Containers[0]
	container.Image = f.image
	seconds := strconv.FormatFloat(f.shrink(j.Duration).Seconds(), 'f', -1, 64)
	switch f.load {
	case "sleep":
		container.Command = []string{"sleep", seconds}
	case "stress":
		container.Args = []string{
			"stress", fmt.Sprintf("--cpu=%dm", max(1, j.Request.MilliCPU)),
			fmt.Sprintf("--memory=%d", j.Request.Memory), "--duration=" + seconds + "s",
		}
	case "lab":
		pod.Annotations[v1alpha1.AnnotationLabRunSeconds] = seconds
	}
	return job
}

// manifest encodes a Job without the empty status of the API type.
func manifest(job *batchv1.Job) ([]byte, error) {
	return yaml.Marshal(struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Spec              batchv1.JobSpec `json:"spec"`
	}{job.TypeMeta, job.ObjectMeta, job.Spec})
}
