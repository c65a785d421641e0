package cmdutil

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubenergy/kubenergy/internal/spelling"
)

// Kinds of objects that commands accept as arguments.
const (
	KindJob        = "job"
	KindPod        = "pod"
	KindCronJob    = "cronjob"
	KindDeployment = "deployment"
	KindNamespace  = "namespace"
)

// kindNames maps the names and aliases that kubectl accepts to kinds.
var kindNames = map[string]string{
	"job": KindJob, "jobs": KindJob, "job.batch": KindJob, "jobs.batch": KindJob,
	"pod": KindPod, "pods": KindPod, "po": KindPod,
	"cronjob": KindCronJob, "cronjobs": KindCronJob, "cj": KindCronJob, "cronjob.batch": KindCronJob,
	"cronjobs.batch": KindCronJob,
	"deployment":     KindDeployment, "deployments": KindDeployment, "deploy": KindDeployment,
	"deployment.apps": KindDeployment, "deployments.apps": KindDeployment,
	"namespace": KindNamespace, "namespaces": KindNamespace, "ns": KindNamespace,
}

// OneObject parses "KIND NAME" or "KIND/NAME" and requires one of the given kinds.
func OneObject(args []string, kinds ...string) (kind, name string, err error) {
	words := args
	if len(args) == 1 {
		words = strings.SplitN(args[0], "/", 2)
	}
	if len(words) != 2 || words[1] == "" {
		return "", "", UsageErrorf("want %s and a name, e.g. %s nightly-report", OrOf(kinds), KindJob)
	}
	kind = kindNames[strings.ToLower(words[0])]
	if slices.Contains(kinds, kind) {
		return kind, words[1], nil
	}
	return "", "", UsageErrorf("unknown kind %q%s: want %s", words[0], spelling.DidYouMean(words[0], kinds),
		OrOf(kinds))
}

// NoArguments returns an error if there are positional arguments.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageErrorf("unexpected argument %q%s: %s does not accept arguments", args[0],
			MeantCommand(cmd, args[0]), cmd.Name())
	}
	return nil
}

// IgnoreNotFound returns err, or nil if it reports that an object does not exist.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Because returns a short, single-line reason of a failed request.
func Because(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden: " + OneLine(err)
	case apierrors.IsNotFound(err):
		return "not found"
	}
	return OneLine(err)
}
