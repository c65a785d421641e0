// Package doctor implements the command doctor, which checks an installation and suggests fixes.
package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Doctor checks a cluster. It is read-only.
type Doctor struct {
	client    kubernetes.Interface
	Config    *rest.Config
	Namespace string // namespace of the components
	Now       func() time.Time

	check    string // name of the current check
	Findings []dashboard.Finding

	// Results that later checks use.
	fresh       map[string]bool               // names of Leases that are held
	deployments map[string]*appsv1.Deployment // Deployments of KubEnergy by name
	scheduler   time.Time                     // creation time of its Deployment; zero if not found
	policy      *v1alpha1.EnergyPolicy        // policy of the cluster; nil if not found
	view        *kube.View                    // nil until it is read
	crds        bool
}

// Checks are the checks in the order of their dependencies.
var Checks = []struct {
	name string
	look func(*Doctor, context.Context)
}{
	{"kubernetes version", (*Doctor).checkVersion},
	{"clock", (*Doctor).checkClock},
	{"admission policies", (*Doctor).checkServedPolicies},
	{"custom resources", (*Doctor).checkCRDs},
	{"components", (*Doctor).checkComponents},
	{"leases", (*Doctor).checkLeases},
	{"permissions", (*Doctor).checkPermissions},
	{"hold policy", (*Doctor).checkHoldPolicy},
	{"mode", (*Doctor).checkMode},
	{"grid zones", (*Doctor).checkZones},
	{"nodes", (*Doctor).checkNodes},
	{"held jobs", (*Doctor).checkHeldJobs},
	{"held jobs", (*Doctor).checkCronJobs},
	{"scheduler names", (*Doctor).checkStranded},
	{"variables", (*Doctor).checkVariables},
	{"controller", (*Doctor).CheckController},
	{"karmada", (*Doctor).checkPropagation},
	{"metrics", (*Doctor).checkMetrics},
}

// NewCommand returns the command doctor, which checks an installation and gives advice.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the cluster, the installation, its permissions, its clock and its signals",
		Long: `Check the prerequisites of an installation and print advice for each problem. The command is read-only
and uses your own permissions. Resources that you may not read are reported as warnings instead of failures. The exit
code is 1 if a check failed. The capabilities of nodes to measure power (RAPL, meters) are not checked.`,
		Example: `  kubenergy doctor
  kubenergy doctor -o json | jq '.checks[] | select(.status != "ok")'`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Namespace == "" {
				return cmdutil.UsageErrorf("--namespace must not be empty")
			}
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			return Examine(cmd.Context(), c, f.Namespace, t.Now).report(t, format.Value)
		},
	}
	f.Add(cmd.Flags(), "")
	cmd.Flags().StringVarP(&f.Namespace, "namespace", "n", v1alpha1.SystemNamespace,
		"namespace of KubEnergy's components")
	format = cmdutil.Output(cmd.Flags(), "text", "json")
	return cmd
}

// Examine runs all checks of an installation in a namespace. If the API server is unreachable, it stops after the
// first finding.
func Examine(ctx context.Context, c *cmdutil.Cluster, namespace string, now func() time.Time) *Doctor {
	d := &Doctor{
		client: c, Config: c.Config, Namespace: namespace, Now: now, fresh: map[string]bool{},
		deployments: map[string]*appsv1.Deployment{},
	}
	for i, c := range Checks {
		d.check = c.name
		c.look(d, ctx)
		if i == 0 && d.Findings[0].Status == dashboard.StatusFail && d.Findings[0].Advice == adviceUnreachable {
			break
		}
	}
	return d
}

func (d *Doctor) add(s dashboard.Status, advice, format string, args ...any) {
	d.Findings = append(d.Findings, dashboard.Finding{
		Check: d.check, Status: s, Message: fmt.Sprintf(format, args...), Advice: advice,
	})
}

func (d *Doctor) ok(format string, args ...any) { d.add(dashboard.StatusOK, "", format, args...) }

func (d *Doctor) warn(advice, format string, args ...any) {
	d.add(dashboard.StatusWarn, advice, format, args...)
}

func (d *Doctor) fail(advice, format string, args ...any) {
	d.add(dashboard.StatusFail, advice, format, args...)
}

// absent reports whether a program is not running. It returns false if this cannot be determined.
func (d *Doctor) absent(ctx context.Context, program string) bool {
	why, err := kube.Absent(ctx, d.client, d.Namespace, program, d.Now())
	return why != "" && err == nil
}

// okWithScheduler adds a property that only has an effect if a scheduler is running.
func (d *Doctor) okWithScheduler(ctx context.Context, format string, args ...any) {
	if d.absent(ctx, cmdutil.SchedulerName) {
		d.warn(adviceInstall, format+"; no scheduler is installed or running", args...)
		return
	}
	d.ok(format, args...)
}

const adviceInstall = "install the chart, or start its components"

const adviceRights = "ask a user with this permission, or use another --context"

// unseen adds a warning for a resource that could not be read. It is not a failure, because the cause may be
// missing permissions of the user.
func (d *Doctor) unseen(what string, err error) {
	if apierrors.IsForbidden(err) {
		d.warn(adviceRights, "you are not allowed to read %s", what)
		return
	}
	d.warn("try again", "failed to read %s: %s", what, cmdutil.OneLine(err))
}

// findings is the output of the command doctor.
type findings struct {
	APIVersion string              `json:"apiVersion"`
	Checks     []dashboard.Finding `json:"checks"`
	Kind       string              `json:"kind"`
}

func (d *Doctor) report(t cmdutil.Terminal, format string) error {
	f := &findings{APIVersion: "kubenergy.io/v1alpha1", Kind: "DoctorReport", Checks: d.Findings}
	if err := t.Print(f, format); err != nil {
		return err
	}
	passed := func(f dashboard.Finding) bool { return f.Status != dashboard.StatusFail }
	if failed := slices.DeleteFunc(slices.Clone(d.Findings), passed); len(failed) > 0 {
		return fmt.Errorf("%s failed", humanize.Count(len(failed), "check"))
	}
	return nil
}

var statusColours = map[dashboard.Status]string{
	dashboard.StatusOK: "\x1b[32m", dashboard.StatusWarn: "\x1b[33m", dashboard.StatusFail: "\x1b[31m",
}

// Text returns the findings, one below the other.
func (f *findings) Text(_, colours bool) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	last := ""
	for _, c := range f.Checks {
		name := c.Check
		if name == last {
			name = ""
		}
		last = c.Check
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Status, name, c.Message)
		if c.Advice != "" {
			fmt.Fprintf(w, "\t\t→ %s\n", c.Advice)
		}
	}
	_ = w.Flush() // strings.Builder never returns an error
	text := b.String()
	if colours { // added after the layout, which counts escape sequences
		for status, colour := range statusColours {
			line := regexp.MustCompile("(?m)^" + string(status) + " ")
			text = line.ReplaceAllString(text, colour+string(status)+"\x1b[0m ")
		}
	}
	return text + "\n" + dashboard.Verdict(f.Checks) + "\n"
}
