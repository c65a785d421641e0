package doctor

import (
	"context"
	"errors"
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

// Status is how bad a finding is.
type Status = dashboard.Status

// How bad findings are.
const (
	StatusOK   = dashboard.StatusOK
	StatusWarn = dashboard.StatusWarn
	StatusFail = dashboard.StatusFail
)

// Finding is the outcome of one check: what is, and what to do about it.
type Finding = dashboard.Finding

// Doctor looks at a cluster. It changes nothing.
type Doctor struct {
	client    kubernetes.Interface
	Config    *rest.Config
	Namespace string // of our components
	Now       func() time.Time

	check    string // the one that runs
	Findings []Finding

	// What one check has learned and another needs.
	fresh       map[string]bool               // Leases, by name
	deployments map[string]*appsv1.Deployment // of ours, by name
	scheduler   time.Time                     // creation of its Deployment; zero: none is seen
	policy      *v1alpha1.EnergyPolicy        // of the cluster; nil: none is seen
	view        *kube.View                    // nil: not read yet
	crds        bool
}

// Checks in the order in which they build on each other.
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
	{"scheduler names", (*Doctor).checkStranded},
	{"variables", (*Doctor).checkVariables},
	{"controller", (*Doctor).CheckController},
	{"karmada", (*Doctor).checkPropagation},
	{"metrics", (*Doctor).checkMetrics},
}

// NewCommand returns the command doctor, which checks an installation and says what to do about what is wrong.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the cluster, the installation, its rights, its clock and its signals",
		Long: `Check what an installation depends on, and say what to do about what is wrong. It only reads,
with your own rights; what you may not see is said and not counted as a failure. The exit code is 1 if something has
failed. What nodes can measure themselves (RAPL, meters) cannot be seen from here.`,
		Example: `  kubenergy doctor
  kubenergy doctor -o json | jq '.checks[] | select(.status != "ok")'`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Namespace == "" {
				return cmdutil.NewUsageError(errors.New("--namespace is empty"))
			}
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			return Examine(cmd.Context(), c, f.Namespace, t.Now).report(t, format.Value)
		},
	}
	f.Add(cmd.Flags())
	cmd.Flags().StringVarP(&f.Namespace, "namespace", "n", v1alpha1.SystemNamespace,
		"namespace of KubEnergy's components")
	format = cmdutil.Output(cmd.Flags(), "text", "json")
	return cmd
}

// Examine runs all checks of an installation in a namespace. If there is no server to ask, one finding says so.
func Examine(ctx context.Context, c *cmdutil.Cluster, namespace string, now func() time.Time) *Doctor {
	d := &Doctor{
		client: c, Config: c.Config, Namespace: namespace, Now: now, fresh: map[string]bool{},
		deployments: map[string]*appsv1.Deployment{},
	}
	for i, c := range Checks {
		d.check = c.name
		c.look(d, ctx)
		if i == 0 && d.Findings[0].Status == StatusFail && d.Findings[0].Advice == adviceUnreachable {
			break
		}
	}
	return d
}

func (d *Doctor) say(s Status, advice, format string, args ...any) {
	d.Findings = append(d.Findings, Finding{
		Check: d.check, Status: s, Message: fmt.Sprintf(format, args...), Advice: advice,
	})
}

func (d *Doctor) ok(format string, args ...any) { d.say(StatusOK, "", format, args...) }

const adviceRights = "ask a person with that right, or use another --context"

// unseen says that something could not be read. That is a matter of the user's rights, not of the cluster's health.
func (d *Doctor) unseen(what string, err error) {
	if apierrors.IsForbidden(err) {
		d.say(StatusWarn, adviceRights, "you may not read %s", what)
		return
	}
	d.say(StatusWarn, "try again", "%s could not be read: %s", what, cmdutil.OneLine(err))
}

// findings are what doctor prints.
type findings struct {
	APIVersion string    `json:"apiVersion"`
	Checks     []Finding `json:"checks"`
	Kind       string    `json:"kind"`
}

func (d *Doctor) report(t cmdutil.Terminal, format string) error {
	f := &findings{APIVersion: "kubenergy.io/v1alpha1", Kind: "DoctorReport", Checks: d.Findings}
	if err := t.Print(f, format); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(d.Findings), func(f Finding) bool { return f.Status != StatusFail })
	if len(failed) > 0 {
		return fmt.Errorf("%s failed", humanize.Count(len(failed), "check"))
	}
	return nil
}

var statusColours = map[Status]string{StatusOK: "\x1b[32m", StatusWarn: "\x1b[33m", StatusFail: "\x1b[31m"}

// Text shows the findings below each other.
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
	_ = w.Flush() // a builder never fails
	text := b.String()
	if colours { // after the columns are laid out, which counts what is not seen
		for status, colour := range statusColours {
			line := regexp.MustCompile("(?m)^" + string(status) + " ")
			text = line.ReplaceAllString(text, colour+string(status)+"\x1b[0m ")
		}
	}
	return text + "\n" + dashboard.Verdict(f.Checks) + "\n"
}
