package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubenergy/kubenergy/internal/spelling"
)

// The kinds of objects that people name.
const (
	kindJob        = "job"
	kindPod        = "pod"
	kindCronJob    = "cronjob"
	kindDeployment = "deployment"
	kindNamespace  = "namespace"
)

// kindNames are what kubectl calls them as well.
var kindNames = map[string]string{
	"job": kindJob, "jobs": kindJob, "job.batch": kindJob, "jobs.batch": kindJob,
	"pod": kindPod, "pods": kindPod, "po": kindPod,
	"cronjob": kindCronJob, "cronjobs": kindCronJob, "cj": kindCronJob, "cronjob.batch": kindCronJob,
	"cronjobs.batch": kindCronJob,
	"deployment":     kindDeployment, "deployments": kindDeployment, "deploy": kindDeployment,
	"deployment.apps": kindDeployment, "deployments.apps": kindDeployment,
	"namespace": kindNamespace, "namespaces": kindNamespace, "ns": kindNamespace,
}

// oneObject wants a kind and a name, as "job NAME" or "job/NAME", of one of the given kinds.
func oneObject(args []string, kinds ...string) (kind, name string, err error) {
	words := args
	if len(args) == 1 {
		words = strings.SplitN(args[0], "/", 2)
	}
	if len(words) != 2 || words[1] == "" {
		return "", "", invalidUsage(fmt.Errorf("want %s and a name, as in %s nightly-report", orOf(kinds), kinds[0]))
	}
	kind = kindNames[strings.ToLower(words[0])]
	if slices.Contains(kinds, kind) {
		return kind, words[1], nil
	}
	return "", "", invalidUsage(fmt.Errorf("unknown kind %q%s: want %s", words[0], spelling.DidYouMean(words[0], kinds),
		orOf(kinds)))
}

// noArguments refuses what a command does not take.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return invalidUsage(fmt.Errorf("unexpected argument %q%s: %s takes flags only", args[0],
			meantCommand(cmd, args[0]), cmd.Name()))
	}
	return nil
}

// because is why a request failed, in one line and as short as it is still true.
func because(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden: " + oneLine(err)
	case apierrors.IsNotFound(err):
		return "not found"
	}
	return oneLine(err)
}
