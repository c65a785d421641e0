package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

func newForget(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Reset the learnt run times of a namespace",
		Long: `Reset the run times that the controller has learnt from the completed Jobs of a namespace, for example
after its workloads have changed. Until enough Jobs have completed again, expected durations are those of annotations
and policies. The command requires the role edit in the namespace.`,
		Example: "  kubenergy forget -n reports",
		Args:    cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			return forget(cmd.Context(), t, c)
		},
	}
	f.Add(cmd.Flags(), "namespace")
	return cmd
}

func forget(ctx context.Context, t cmdutil.Terminal, c *cmdutil.Cluster) error {
	now := t.Now().UTC().Truncate(time.Second).Format(time.RFC3339)
	err := c.Discovery().RESTClient().Patch(types.MergePatchType).
		AbsPath(cmdutil.ResourcePath + "namespaces/" + c.Namespace + "/jobprofiles/" + v1alpha1.PolicyName).
		Body(fmt.Appendf(nil, `{"spec":{"forgetBefore":%q}}`, now)).Do(ctx).Error()
	switch {
	case apierrors.IsNotFound(err):
		_, err = fmt.Fprintf(t.Out, "namespace %s: no run times have been learnt\n", c.Namespace)
	case err != nil:
		err = fmt.Errorf("resetting the run times of namespace %s: %s", c.Namespace, cmdutil.Because(err))
	default:
		_, err = fmt.Fprintf(t.Out, "namespace %s: run times of Jobs completed until %s are forgotten\n", c.Namespace,
			now)
	}
	return err
}
