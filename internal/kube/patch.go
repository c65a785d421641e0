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

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// HeldJob names the very Job that a patch is for, as it was seen.
type HeldJob struct {
	UID       types.UID
	Version   string // resourceVersion
	Annotated bool   // it has annotations
	Queued    bool   // by Kueue, which resumes it itself
}

// SeenJob returns what patches need of a Job.
func SeenJob(j *batchv1.Job) HeldJob {
	_, queued := j.Labels[policy.LabelKueueQueue]
	return HeldJob{UID: j.UID, Version: j.ResourceVersion, Annotated: len(j.Annotations) > 0, Queued: queued}
}

// patchOp is one step of a JSON patch. The API server applies them to the object as it is then: a test that fails
// leaves everything as it was.
type patchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func op(name, path string, value any) patchOp { return patchOp{name, path, render(value)} }

var heldLabelPath = "/metadata/labels/" + escape(v1alpha1.LabelHeld)

// guard makes a patch fail unless it meets this very Job, and it is still ours.
func (j HeldJob) guard() []patchOp {
	return []patchOp{op("test", "/metadata/uid", j.UID), op("test", heldLabelPath, "true")}
}

// annotate adds annotations. Where a Job has none, the map must be added, which would overwrite one that came
// meanwhile: then the patch is for the version that was seen.
func (j HeldJob) annotate(annotations map[string]string) []patchOp {
	if !j.Annotated {
		return []patchOp{
			op("test", "/metadata/resourceVersion", j.Version), op("add", "/metadata/annotations", annotations),
		}
	}
	var ops []patchOp
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		ops = append(ops, op("add", "/metadata/annotations/"+escape(key), annotations[key]))
	}
	return ops
}

// ReleasePatch resumes the Job, unless Kueue does, and takes off our label. It changes nothing if another
// client released it, or its user took it over by removing the label.
func (j HeldJob) ReleasePatch(now time.Time) []byte {
	ops := append(j.guard(), patchOp{Op: "remove", Path: heldLabelPath})
	if j.Queued {
		return render(ops)
	}
	ops = append(ops, j.annotate(map[string]string{v1alpha1.AnnotationReleasedAt: now.UTC().Format(time.RFC3339)})...)
	return render(append(ops, op("add", "/spec/suspend", false)))
}

// Release releases the Job with ReleasePatch and reports whether this call did.
func (j HeldJob) Release(ctx context.Context, client kubernetes.Interface, namespace, name string, now time.Time,
) (ours bool, err error) {
	jobs := client.BatchV1().Jobs(namespace)
	_, err = jobs.Patch(ctx, name, types.JSONPatchType, j.ReleasePatch(now), metav1.PatchOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	// A failed test and a refusal by a policy look the same.
	current, errGet := jobs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(errGet) ||
		errGet == nil && (current.UID != j.UID || current.Labels[v1alpha1.LabelHeld] != "true") {
		return false, nil
	}
	return false, fmt.Errorf("releasing Job %s/%s: %w", namespace, name, err)
}

// SayPatch writes annotations, unless the Job was released meanwhile.
func (j HeldJob) SayPatch(annotations map[string]string) []byte {
	return render(append(j.guard(), j.annotate(annotations)...))
}

func escape(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// render renders what cannot fail to be rendered.
func render(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
