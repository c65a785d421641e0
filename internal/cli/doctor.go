package cli

import (
	"context"
	"encoding/json"
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
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// status is how bad a finding is.
type status = dashboard.Status

const (
	statusOK   = dashboard.StatusOK
	statusWarn = dashboard.StatusWarn
	statusFail = dashboard.StatusFail
)

// finding is the outcome of one check: what is, and what to do about it.
type finding = dashboard.Finding

// doctor looks at a cluster. It changes nothing.
type doctor struct {
	client    kubernetes.Interface
	config    *rest.Config
	namespace string // of our components
	now       func() time.Time

	check    string // the one that runs
	findings []finding

	// What one check has learned and another needs.
	fresh       map[string]bool               // Leases, by name
	deployments map[string]*appsv1.Deployment // of ours, by name
	scheduler   time.Time                     // creation of its Deployment; zero: none is seen
	policy      *v1alpha1.EnergyPolicy        // of the cluster; nil: none is seen
	view        *kube.View                    // nil: not read yet
	crds        bool
}

// checks in the order in which they build on each other.
var checks = []struct {
	name string
	look func(*doctor, context.Context)
}{
	{"kubernetes version", (*doctor).lookAtVersion},
	{"clock", (*doctor).lookAtClock},
	{"admission policies", (*doctor).lookAtServedPolicies},
	{"custom resources", (*doctor).lookAtCRDs},
	{"components", (*doctor).lookAtComponents},
	{"leases", (*doctor).lookAtLeases},
	{"permissions", (*doctor).lookAtPermissions},
	{"hold policy", (*doctor).lookAtHoldPolicy},
	{"mode", (*doctor).lookAtMode},
	{"defaults", (*doctor).lookAtDefaults},
	{"grid zones", (*doctor).lookAtZones},
	{"nodes", (*doctor).lookAtNodes},
	{"held jobs", (*doctor).lookAtHeldJobs},
	{"scheduler names", (*doctor).lookAtStranded},
	{"variables", (*doctor).lookAtVariables},
	{"controller", (*doctor).lookAtCentral},
	{"karmada", (*doctor).lookAtPropagation},
	{"metrics", (*doctor).lookAtMetrics},
}

func newDoctor(t terminal) *cobra.Command {
	var f clusterFlags
	var format *choice
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the cluster, the installation, its rights, its clock and its signals",
		Long: `Check what an installation depends on, and say what to do about what is wrong. It only reads,
with your own rights; what you may not see is said and not counted as a failure. The exit code is 1 if something has
failed. What nodes can measure themselves (RAPL, meters) cannot be seen from here.`,
		Example: `  kubenergy doctor
  kubenergy doctor -o json | jq '.checks[] | select(.status != "ok")'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.namespace == "" {
				return invalidUsage(errors.New("--namespace is empty"))
			}
			c, err := f.open(t)
			if err != nil {
				return err
			}
			return examine(cmd.Context(), c, f.namespace, t.now).report(t, format.value)
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", v1alpha1.SystemNamespace,
		"namespace of KubEnergy's components")
	format = output(cmd.Flags(), "text", "json")
	return cmd
}

// examine runs all checks of an installation in a namespace. If there is no server to ask, one finding says so.
func examine(ctx context.Context, c *cluster, namespace string, now func() time.Time) *doctor {
	d := &doctor{
		client: c, config: c.config, namespace: namespace, now: now, fresh: map[string]bool{},
		deployments: map[string]*appsv1.Deployment{},
	}
	for i, c := range checks {
		d.check = c.name
		c.look(d, ctx)
		if i == 0 && d.findings[0].Status == statusFail && d.findings[0].Advice == adviceUnreachable {
			break
		}
	}
	return d
}

func (d *doctor) say(s status, advice, format string, args ...any) {
	d.findings = append(d.findings, finding{
		Check: d.check, Status: s, Message: fmt.Sprintf(format, args...), Advice: advice,
	})
}

func (d *doctor) ok(format string, args ...any) { d.say(statusOK, "", format, args...) }

const adviceRights = "ask a person with that right, or use another --context"

// unseen says that something could not be read. That is a matter of the user's rights, not of the cluster's health.
func (d *doctor) unseen(what string, err error) {
	if apierrors.IsForbidden(err) {
		d.say(statusWarn, adviceRights, "you may not read %s", what)
		return
	}
	d.say(statusWarn, "try again", "%s could not be read: %s", what, oneLine(err))
}

// getJSON reads an object of a kind that client-go does not know.
func getJSON(ctx context.Context, client kubernetes.Interface, path string, into any) error {
	data, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").
		Do(ctx).Raw() // whose error, unlike that of DoRaw, is what the API server said
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// findings are what doctor prints.
type findings struct {
	APIVersion string    `json:"apiVersion"`
	Checks     []finding `json:"checks"`
	Kind       string    `json:"kind"`
}

func (d *doctor) report(t terminal, format string) error {
	f := &findings{APIVersion: "kubenergy.io/v1alpha1", Kind: "DoctorReport", Checks: d.findings}
	if err := t.print(f, format); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(d.findings), func(f finding) bool { return f.Status != statusFail })
	if len(failed) > 0 {
		return fmt.Errorf("%s failed", count(len(failed), "check"))
	}
	return nil
}

var statusColours = map[status]string{statusOK: "\x1b[32m", statusWarn: "\x1b[33m", statusFail: "\x1b[31m"}

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
