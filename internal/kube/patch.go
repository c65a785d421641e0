package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// HeldJob identifies a version of a held Job for patches.
type HeldJob struct {
	UID       types.UID
	Version   string // resourceVersion
	Annotated bool   // the Job has annotations
	Queued    bool   // the Job is in a queue of Kueue, which resumes it itself
	Final     bool   // the Job must not be paused after its release
}

// SeenJob returns the fields of a Job that patches need.
func SeenJob(j *batchv1.Job) HeldJob {
	_, queued := j.Labels[policy.LabelKueueQueue]
	return HeldJob{
		UID: j.UID, Version: j.ResourceVersion, Annotated: len(j.Annotations) > 0, Queued: queued,
		// Otherwise a Job that its user has resumed would be paused again.
		Final: j.Labels[v1alpha1.LabelInterruptible] == "true" && !ptr.Deref(j.Spec.Suspend, false),
	}
}

// patchOp is an operation of a JSON patch. The API server applies all operations to the current version of the
// object, or none if a test fails.
type patchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func op(name, path string, value any) patchOp { return patchOp{name, path, render(value)} }

var heldLabelPath = "/metadata/labels/" + escape(v1alpha1.LabelHeld)

// guard returns tests that make a patch fail unless it is applied to this Job and the Job is still held.
func (j HeldJob) guard() []patchOp {
	return []patchOp{op("test", "/metadata/uid", j.UID), op("test", heldLabelPath, "true")}
}

// annotate returns operations that add annotations. If the Job has no annotations, the map must be created. This
// would overwrite concurrently added annotations, so the patch then requires the same resource version.
func (j HeldJob) annotate(annotations map[string]string) []patchOp {
	if !j.Annotated {
		return []patchOp{
			op("test", "/metadata/resourceVersion", j.Version), op("add", "/metadata/annotations", annotations),
		}
	}
	return sliceutil.Map(slices.Sorted(maps.Keys(annotations)), func(key string) patchOp {
		return op("add", "/metadata/annotations/"+escape(key), annotations[key])
	})
}

// ReleasePatch returns a patch that resumes the Job, unless Kueue does so, and removes the held label. The patch
// fails without changes if another client has released the Job, or if its user has taken it over by removing the
// label.
func (j HeldJob) ReleasePatch(now time.Time) []byte {
	ops := append(j.guard(), patchOp{Op: "remove", Path: heldLabelPath})
	if j.Queued {
		return render(ops)
	}
	marks := map[string]string{v1alpha1.AnnotationReleasedAt: now.UTC().Format(time.RFC3339)}
	if j.Final {
		marks[v1alpha1.AnnotationRunNow] = "true"
	}
	return render(append(append(ops, j.annotate(marks)...), op("add", "/spec/suspend", false)))
}

// Release releases the Job with ReleasePatch and reports whether this call released it.
func (j HeldJob) Release(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time,
) (ours bool, err error) {
	jobs := client.BatchV1().Jobs(namespace)
	_, err = jobs.Patch(ctx, name, types.JSONPatchType, j.ReleasePatch(now), metav1.PatchOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	// A failed test cannot be distinguished from a rejection by an admission policy.
	current, errGet := jobs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(errGet) ||
		errGet == nil && (current.UID != j.UID || current.Labels[v1alpha1.LabelHeld] != "true") {
		return false, nil
	}
	return false, fmt.Errorf("releasing Job %s/%s: %w", namespace, name, err)
}

// ScalePatch returns a patch that changes the number of pods of a running Job, unless the Job has changed.
func ScalePatch(j *batchv1.Job, replicas int, annotations map[string]string) []byte {
	return render(append(append(asSeen(j), SeenJob(j).annotate(annotations)...), scale(j, replicas)...))
}

func scale(j *batchv1.Job, replicas int) (ops []patchOp) {
	if policy.ElasticIndexed(j) {
		ops = append(ops, op("add", "/spec/completions", replicas))
	}
	return append(ops, op("add", "/spec/parallelism", replicas))
}

// PausePatch returns a patch that suspends a running Job and makes it a held Job, unless it has changed. If replicas is
// not 0, the Job is resumed with this number of pods.
func PausePatch(j *batchv1.Job, replicas int, annotations map[string]string) []byte {
	ops := append(asSeen(j), put("/metadata/labels", j.Labels, v1alpha1.LabelHeld, "true"))
	ops = append(ops, SeenJob(j).annotate(annotations)...)
	for _, key := range []string{v1alpha1.AnnotationReleasedAt, v1alpha1.AnnotationScaledAt} {
		if _, ok := j.Annotations[key]; ok {
			ops = append(ops, drop("/metadata/annotations", key))
		}
	}
	if replicas > 0 {
		ops = append(ops, scale(j, replicas)...)
	}
	return render(append(ops, op("add", "/spec/suspend", true)))
}

// SayPatch returns a patch that sets annotations. The patch fails if the Job has been released in the meantime.
func (j HeldJob) SayPatch(annotations map[string]string) []byte {
	return render(append(j.guard(), j.annotate(annotations)...))
}

func escape(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// render encodes a value that is known to be encodable.
func render(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
