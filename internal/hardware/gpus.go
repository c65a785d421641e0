package hardware

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// found contains the GPUs of a node according to a single source.
type found struct {
	from   string
	models []string // keys of the catalogue, sorted, with repetitions
	count  int64    // number counted by Kubernetes; 0 if unknown
	share  float64  // fraction of a board per GPU
}

// gpu determines the GPUs of the node. It returns false if the node has GPUs of unknown power.
func (d *detection) gpu() bool {
	if model := d.annotations[annotationGPUModel]; strings.EqualFold(strings.TrimSpace(model), "none") {
		return d.noGPU()
	}
	f, unknown := d.findGPU()
	total := energy.Watts(d.annotated(annotationGPUPower, "watts, more than 0",
		func(w float64) bool { return w > 0 && w <= maxWatts }))
	const most = 1024
	annotated := d.annotated(annotationGPUCount, fmt.Sprint("0 to ", most),
		func(n float64) bool { return n >= 0 && n <= most && n == math.Trunc(n) })
	// Jobs are charged for the GPUs counted by Kubernetes.
	count := cmp.Or(d.gpus, int64(annotated), max(f.count, int64(len(f.models))))
	k := &d.kind.Components
	switch {
	case len(f.models) == 0 && count == 0 && !unknown:
		return true // it has none
	case len(f.models) == 0 && total > 0 && count > 0:
		k.GPUModel, d.kind.GPUFrom = "GPU of unknown model", "annotation "+annotationGPUPower
		d.kind.Fallback = true
	case len(f.models) == 0:
		if !unknown {
			d.kind.note("the model of its %d GPUs is unknown", count)
		}
		return false
	default:
		k.GPUModel, d.kind.GPUFrom = joined(f.models), f.from
		if f.share != 1 {
			k.GPUShare = f.share
		}
	}
	k.GPUs = count
	if total > 0 {
		k.GPUPower = cents(total / energy.Watts(count))
	}
	return true
}

// noGPU handles the annotation that a node has no GPU. It returns false if Kubernetes counts GPUs.
func (d *detection) noGPU() bool {
	d.kind.GPUFrom = "annotation " + annotationGPUModel
	if d.gpus > 0 {
		d.kind.note("%s is none, but the node has %d GPUs", d.kind.GPUFrom, d.gpus)
	}
	return d.gpus == 0
}

// joined joins the boards in a sorted list. If they differ, each is listed as often as it occurs, because the mean
// depends on their numbers.
func joined(models []string) string {
	if models[0] == models[len(models)-1] {
		return models[0]
	}
	return strings.Join(models, mix)
}

// findGPU evaluates the sources of GPU models in order. unknown is set if a source has a model that is not in the
// catalogue.
func (d *detection) findGPU() (f found, unknown bool) {
	for _, place := range []struct{ from, value, count string }{
		{"annotation " + annotationGPUModel, d.annotations[annotationGPUModel], ""},
		{"annotation " + labelGPUModel, d.annotations[labelGPUModel], ""},
		{"label " + labelGPUModel, d.labels[labelGPUModel], ""},
		{"label " + labelNVIDIA + "product", d.labels[labelNVIDIA+"product"], d.labels[labelNVIDIA+"count"]},
		{"label " + labelAMDProduct, d.labels[labelAMDProduct], ""},
		{"label " + labelGKEProduct, d.labels[labelGKEProduct], d.labels[labelGKEProduct+"-count"]},
	} {
		if place.value == "" || strings.EqualFold(place.value, "unknown") {
			continue
		}
		models, sevenths, shared, strange := d.catalog.recognised(place.value)
		if strange != "" {
			d.kind.note("%s is %s, which is not in the catalogue", place.from, quoted(strange))
			unknown = true
			continue
		}
		f = found{from: place.from, models: models, share: 1}
		f.count, _ = strconv.ParseInt(place.count, 10, 64)
		if sevenths > 0 {
			f.share = rounded(float64(sevenths)/7, 1e4)
		}
		// The product has no suffix if the resource of shared devices has another name.
		if shared || strings.HasPrefix(place.from, "label "+labelNVIDIA) {
			if n, err := strconv.ParseInt(d.labels[labelNVIDIA+"replicas"], 10, 64); err == nil && n > 1 {
				f.share = rounded(f.share/float64(n), 1e4)
				f.count *= n
			}
		}
		return f, false
	}
	return d.otherGPU(unknown)
}

// otherGPU returns the GPUs of the instance type, or the ones reported by the node's agent.
func (d *detection) otherGPU(unknown bool) (f found, still bool) {
	from, named, count := "label "+d.typeFrom, d.instance.GPUModel, d.instance.GPUs
	if !d.typed || named == "" {
		from, named = "label "+v1alpha1.LabelGPUModel, d.labels[v1alpha1.LabelGPUModel]
		count, _ = strconv.ParseInt(d.labels[v1alpha1.LabelGPUCount], 10, 64)
	}
	models, _, _, strange := d.catalog.recognised(named)
	if len(models) > 0 {
		f = found{from: from, models: models, count: count, share: 1}
		if d.gpus > f.count && f.count > 0 {
			f.share = rounded(float64(f.count)/float64(d.gpus), 1e4) // boards are partitioned in an unknown way
		}
		return f, false
	}
	if strange != "" {
		d.kind.note("%s has GPUs %s, which are not in the catalogue", from, quoted(strange))
		// GPUs reported by an agent but not counted by Kubernetes may only drive a screen.
		unknown = unknown || d.typed && d.instance.GPUModel != "" || d.gpus > 0
	}
	return found{}, unknown
}
