package hold

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestTheLastDecisionsAreRecorded terminates a leader gracefully right after it has placed pods. Records are sent
// in batches, a few seconds after the first record.
func TestTheLastDecisionsAreRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	w := shared
	var mu sync.Mutex
	placed := map[string]bool{}
	controller := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The delay is longer than that of the API server and shorter than a leader election takes in this test.
		time.Sleep(300 * time.Millisecond)
		var reported struct{ Decisions []ledger.Record }
		if err := json.NewDecoder(r.Body).Decode(&reported); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range reported.Decisions {
			placed[reported.Decisions[i].UID] = true
		}
	}))
	t.Cleanup(controller.Close)
	namespace := w.Namespace(t, "last-records", nil)
	w.forgetLeases(t)
	s := w.scheduler(t, "last-records", w.declining(t), "--kubenergy-record-url="+controller.URL)
	w.Leads(t, s)

	uids := map[string]string{}
	for i := range 20 {
		pod := newPod(fmt.Sprint("p", i), "0s", nil)
		pod.Annotations[v1alpha1.AnnotationStrategy] = "energy"
		created, err := w.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[string(created.UID)] = created.Name
	}
	kit.Eventually(t, 30*time.Second, "all pods are bound", func() bool {
		pods, err := w.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == "" {
				return false
			}
		}
		return true
	})
	time.Sleep(100 * time.Millisecond) // a pod is observed as bound before its cycle ends
	asked := time.Now()
	if err := s.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	t.Logf("scheduler exited %v after the signal", time.Since(asked).Round(time.Millisecond))
	mu.Lock()
	defer mu.Unlock()
	for uid, name := range uids {
		if !placed[uid] {
			t.Errorf("placement of pod %s was not recorded", name)
		}
	}
	lease, err := w.Client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(t.Context(), "kubenergy-scheduler",
		metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("Lease was not released: holder %v, error %v", lease.Spec.HolderIdentity, err)
	}
}
