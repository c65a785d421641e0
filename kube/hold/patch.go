package hold

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/kube"
)

// patchOp is one step of a JSON patch. The API server applies them to the object as it is then: a test that fails
// leaves everything as it was.
type patchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func op(name, path string, value any) patchOp { return patchOp{name, path, marshal(value)} }

var labelPath = "/metadata/labels/" + escape(kube.LabelHeld)

// guard makes a patch fail unless it meets this very Job, and it is still ours.
func (h *hold) guard() []patchOp {
	return []patchOp{op("test", "/metadata/uid", h.uid), op("test", labelPath, "true")}
}

// annotate adds annotations. Where a Job has none, the map must be added, which would overwrite one that came
// meanwhile: then the patch is for the version that was seen.
func (h *hold) annotate(annotations map[string]string) []patchOp {
	if !h.annotated {
		return []patchOp{op("test", "/metadata/resourceVersion", h.version), op("add", "/metadata/annotations", annotations)}
	}
	var ops []patchOp
	for key, value := range annotations {
		ops = append(ops, op("add", "/metadata/annotations/"+escape(key), value))
	}
	return ops
}

// releasePatch resumes the Job and takes off our label.
func (h *hold) releasePatch(now time.Time) []byte {
	ops := append(h.guard(), patchOp{Op: "remove", Path: labelPath})
	if !h.handOver {
		stamp := now.UTC().Format(time.RFC3339)
		ops = append(ops, h.annotate(map[string]string{kube.AnnotationReleasedAt: stamp})...)
		ops = append(ops, op("add", "/spec/suspend", false))
	}
	return marshal(ops)
}

func escape(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// marshal renders what cannot fail to be rendered.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
