package release

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// hugeExponent matches quantities that take Kubernetes too long to parse.
var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3}`)

// FuzzHeld verifies for arbitrary annotations that a held Job is not released before its creation and is released
// at the latest one year after it.
func FuzzHeld(f *testing.F) {
	f.Add([]byte(`{"metadata":{"uid":"u","annotations":{"kubenergy.io/latest-start":"2026-06-01T18:00:00Z"}}}`))
	f.Add([]byte(`{"metadata":{"namespace":"n","annotations":{"kubenergy.io/latest-start":"9999-06-01T18:00:00Z",
		"kubenergy.io/allowed-delay":"6h"}}}`))
	created := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	view, err := (&kube.Contents{Defaults: policy.BuiltIn()}).View()
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
		h := NewHeld()
		h.Saw(&job)
		if held := job.Labels[v1alpha1.LabelHeld] == "true"; (h.Count("") == 1) != held {
			t.Fatalf("got %d held Jobs", h.Count(""))
		}
		if job.Labels == nil {
			job.Labels = map[string]string{}
		}
		job.Labels[v1alpha1.LabelHeld] = "true"
		h.Saw(&job)
		j := h.jobs[job.UID]
		if _, early := h.overdue(slog.New(slog.DiscardHandler), j, view, created); early && !j.Queued {
			t.Fatal("the Job is overdue at its creation")
		}
		if _, late := h.overdue(slog.New(slog.DiscardHandler), j, view, created.AddDate(1, 0, 2)); late == j.Queued {
			t.Fatalf("overdue after a year is %v", late)
		}
		h.Lost(&job)
		if h.Count("") != 0 || h.Count(job.Namespace) != 0 {
			t.Fatal("a deleted Job is still counted")
		}
	})
}
