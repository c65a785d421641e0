package hold

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// hugeExponent matches quantities that make the arithmetic of Kubernetes run practically forever.
var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3}`)

// FuzzReadJob verifies that all properties of a held Job are stored, and that no annotation of a user or an earlier
// process holds it longer than the policies allow, or longer than a day if the policies are not loaded.
func FuzzReadJob(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"team","name":"j-1","annotations":{"kubenergy.io/allowed-delay":"6h",
		"kubenergy.io/held-until":"2026-06-01T14:00:00Z","kubenergy.io/latest-start":"2027-06-01T18:00:00Z",
		"batch.kubernetes.io/cronjob-scheduled-timestamp":"2026-06-01T12:00:00Z"},"labels":{"kubenergy.io/held":"true"},
		"ownerReferences":[{"apiVersion":"batch/v1","kind":"CronJob","name":"j","controller":true}]},"spec":{"suspend":
		true,"parallelism":2,"template":{"metadata":{"labels":{"kubenergy.io/team":"red"}},
		"spec":{"priority":-2147483648,
		"nodeSelector":{"b":"","a":"c"},"containers":[{"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}}}`))
	f.Add([]byte(`{"metadata":{"name":"x/y","annotations":{"kubenergy.io/carbon-threshold":"100",
		"kubenergy.io/finish-by":"2026-06-01T12:00:00Z"}}}`))
	created := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	settled, err := (&kube.Contents{Defaults: policy.BuiltIn()}).View()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		var job batchv1.Job
		if hugeExponent.Match(text) || json.Unmarshal(text, &job) != nil {
			return
		}
		job.CreationTimestamp = metav1.NewTime(created)
		h := readJob(&job)
		work, err := policy.ReadJob(&job)
		if diff := cmp.Diff(work, h.work(), cmp.AllowUnexported(policy.Work{}, policy.Terms{})); diff != "" {
			t.Fatal(diff)
		}
		if err != nil && h.state != freed {
			t.Fatalf("the Job is held despite the error %v", err)
		}
		for _, view := range []*kube.View{settled, kube.Unsettled()} {
			late := h.firstDeadline(view).Sub(created) // if negative, the Job is released immediately
			if late > max(unknownDelay, policy.BuiltIn().MaxDelay) {
				t.Fatalf("the Job is held for %v", late)
			}
		}
		if off := time.Duration(h.rank - created.UnixNano()).Abs(); off > 32*perDoubling {
			t.Fatalf("the priority is equivalent to an age of %v", off)
		}
	})
}
