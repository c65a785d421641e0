package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

const (
	schedulerName = "kubenergy"
	account       = "kubenergy-scheduler"
)

// world is a real control plane with the released manifests installed. It is shared by all tests of the package.
type world struct {
	*cluster.Cluster
	link *kit.Link // used by KubEnergy's programs, but not by the test; nil for a direct connection
}

var (
	plane  = cluster.Shared{SetUp: setUp}
	shared = &world{Cluster: &plane.Cluster}
)

// kubeconfig writes a kubeconfig with the permissions of a KubEnergy service account and returns its path.
func (w *world) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	path, _ := w.Account(t, account)
	if w.link != nil {
		path = w.link.Kubeconfig(t, path)
	}
	return path
}

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

func setUp(ctx context.Context, c *cluster.Cluster) error {
	if err := c.AddNodes(ctx, cluster.Nodes(10)); err != nil {
		return err
	}
	if err := c.AdmitHolds(ctx); err != nil {
		return err
	}
	for _, file := range []string{"scheduler/rbac.yaml", "hold/guard.yaml"} {
		manifests, err := os.ReadFile(filepath.Join(kit.Root, "deploy", file))
		if err == nil {
			err = c.Apply(ctx, manifests, nil)
		}
		if err != nil {
			return err
		}
	}
	return admissionWorks(ctx, c)
}

// admissionWorks waits for the admission policies, which become effective a few seconds after they were created.
func admissionWorks(ctx context.Context, c *cluster.Cluster) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			job := newJob("probe", "1h", nil)
			created, err := c.Client.BatchV1().Jobs("default").Create(ctx, job,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil && created.Labels[v1alpha1.LabelHeld] == "true" && *created.Spec.Suspend, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the admission policy to suspend Jobs: %w", err)
	}
	return nil
}

// scheduler starts a replica with the default configuration except for shorter leases, and waits until its caches
// have synced. The file signals does not have to exist.
func (w *world) scheduler(t *testing.T, name, signals string, args ...string) *cluster.Scheduler {
	t.Helper()
	return w.schedulerAs(t, account, name, signals, args...)
}

func (w *world) schedulerAs(t *testing.T, account, name, signals string, args ...string) *cluster.Scheduler {
	t.Helper()
	s := cluster.StartScheduler(t, w.Dir, name, w.kubeconfig(t, account), func(config map[string]any) {
		election := config["leaderElection"].(map[string]any)
		election["leaseDuration"], election["renewDeadline"], election["retryPeriod"] = "6s", "4s", "500ms"
	}, append([]string{"--kubenergy-signals=" + signals, "--kubenergy-min-saving=0"}, args...)...)
	kit.Eventually(t, time.Minute, name+" is ready", func() bool { return s.Ready(t.Context()) }, s.Process)
	return s
}

// forgetLeases deletes the Leases so that the next process can become the leader immediately. The previous leader
// was killed and did not release them.
func (w *world) forgetLeases(t *testing.T) {
	for _, name := range []string{"kubenergy-hold", "kubenergy-scheduler"} {
		err := w.Client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Delete(t.Context(), name,
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// declining writes signals with a carbon intensity that decreases every second for half an hour, so that work is
// held until its deadline.
func (w *world) declining(t *testing.T) (path string) {
	values := make([]float64, 1800)
	for i := range values {
		values[i] = 1000 - float64(i)/2
	}
	file := map[string]any{"apiVersion": "kubenergy.io/v1alpha1", "kind": "Signals", "sites": []any{map[string]any{
		"name": "here", "carbon": map[string]any{
			"start": time.Now().UTC().Add(-time.Minute), "step": "1s", "values": values, "quality": "estimated",
		},
	}}}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return kit.Write(t, filepath.Join(t.TempDir(), "signals.json"), raw)
}
