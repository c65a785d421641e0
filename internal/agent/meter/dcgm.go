package meter

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// NewDCGM returns a meter that scrapes the GPUs from NVIDIA's DCGM exporter, which updates its metrics every 30
// seconds. The metrics contain the pods that use a GPU or an instance; if several pods share one by time slicing,
// their individual usage is unknown.
func NewDCGM(c Config, log *slog.Logger) (*Boards, error) {
	const collects = 30 * time.Second
	s := newScraped(c, NameDCGM, c.DCGMURL, readDCGM, nil, log)
	latest := func() ([]gpu.Board, error) {
		answer, err := s.latest()
		return answer.boards, err
	}
	return &Boards{
		name: NameDCGM, quality: energy.Derived, stale: max(c.stale(), 3*c.ScrapeInterval, 3*collects), scale: c.scale,
		latest: latest, close: s.Close, counters: map[energy.Domain]boardCounter{},
	}, nil
}

const (
	dcgmEnergy      = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" // mJ
	dcgmPower       = "DCGM_FI_DEV_POWER_USAGE"              // W
	dcgmTemperature = "DCGM_FI_DEV_GPU_TEMP"                 // °C
	dcgmUtilization = "DCGM_FI_DEV_GPU_UTIL"                 // %; not for instances
	dcgmActive      = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"        // fraction; also for instances
	dcgmMemory      = "DCGM_FI_DEV_FB_USED"                  // MB

	dcgmBlank = math.MaxInt64 - 100 // values from here on mean that there is no value
)

var dcgmFields = []string{dcgmEnergy, dcgmPower, dcgmTemperature, dcgmUtilization, dcgmActive, dcgmMemory}

func readDCGM(body io.Reader) (page, error) {
	var p page
	err := eachSample(body, func(name string) bool { return slices.Contains(dcgmFields, name) }, func(s *sample) error {
		v, err := strconv.ParseFloat(s.value, 64)
		if err != nil || s.labels["UUID"] == "" {
			return errValue
		}
		if v >= 0 && v < dcgmBlank {
			return useDCGM(&p.boards, s, v)
		}
		return nil
	}, func(_ *sample, err error) { p.invalid = err })
	for i := range p.boards {
		b := &p.boards[i]
		if len(b.Parts) > 1 { // if there are samples of the GPU and its instances, use the instances
			b.Parts = slices.DeleteFunc(b.Parts, func(p gpu.Part) bool { return p.Instance == "" })
		}
		for k := range b.Parts {
			part := &b.Parts[k]
			if math.IsNaN(part.Busy) { // no utilization field
				part.Busy = float64(min(len(part.Uses), 1))
			}
		}
		if slices.ContainsFunc(b.Parts, func(p gpu.Part) bool { return p.SMs == 0 }) {
			p.invalid = fmt.Errorf("unknown MIG profile of an instance of %.64s", b.ID)
			b.Parts = []gpu.Part{undivided(b.Parts)}
		}
	}
	return p, err
}

// undivided returns the whole GPU with the uses of instances with an unknown size. Its energy is attributed to its
// only consumer, or to no consumer if there are several.
func undivided(instances []gpu.Part) gpu.Part {
	whole := gpu.Part{SMs: 1}
	for _, p := range instances {
		whole.Busy = max(whole.Busy, p.Busy)
		whole.Uses = append(whole.Uses, p.Uses...)
	}
	return whole
}

// migProfile matches profiles such as 1g.10gb or 1c.2g.10gb, in units of the slices of data center GPUs. On smaller
// GPUs, the size of instances is underestimated.
var migProfile = regexp.MustCompile(`^(?:MIG )?(?:\dc\.)?([1-7])g\.`)

const migSlices = 7

// useDCGM updates the GPU, the part and, if the sample has pod labels, the container that a sample refers to.
func useDCGM(boards *[]gpu.Board, s *sample, v float64) error {
	read := gpu.Part{Instance: s.labels["GPU_I_ID"], SMs: 1, Busy: math.NaN()}
	if read.Instance != "" {
		read.SMs = 0 // unknown
		if profile := migProfile.FindStringSubmatch(s.labels["GPU_I_PROFILE"]); profile != nil {
			read.SMs = float64(profile[1][0]-'0') / migSlices
		}
	}
	b := entry(boards, gpu.Board{ID: s.labels["UUID"]}, maxBoards, func(b *gpu.Board) bool {
		return b.ID == s.labels["UUID"]
	})
	if b == nil {
		return fmt.Errorf("more than %d GPUs", maxBoards)
	}
	part := entry(&b.Parts, read, migSlices+1, func(p *gpu.Part) bool { return p.Instance == read.Instance })
	if part == nil {
		return fmt.Errorf("more than %d instances of a GPU", migSlices)
	}
	part.SMs = cmp.Or(part.SMs, read.SMs)
	use := useOf(part, s)
	switch {
	case s.name == dcgmEnergy:
		b.Millijoules = new(uint64(v))
	case s.name == dcgmPower:
		b.Milliwatts = new(uint32(math.Round(min(v*1000, math.MaxUint32)))) // the meter rejects such a high power
	case s.name == dcgmTemperature:
		b.Celsius = new(uint32(min(v, maxCelsius)))
	case s.name == dcgmActive:
		part.Busy = v
	case s.name == dcgmUtilization && math.IsNaN(part.Busy):
		part.Busy = v / 100
	case s.name == dcgmMemory && use != nil:
		use.Memory = uint64(v) << 20
	}
	return nil
}

// useOf returns the container that a sample refers to, or nil if it has no pod labels.
func useOf(part *gpu.Part, s *sample) *gpu.Use {
	u := gpu.Use{
		Namespace: s.labels["namespace"], Pod: s.labels["pod"], PodUID: s.labels["pod_uid"],
		Container: s.labels["container"],
	}
	if u.Pod == "" && u.PodUID == "" {
		return nil
	}
	return entry(&part.Uses, u, maxSeries, func(o *gpu.Use) bool {
		return o.Namespace == u.Namespace && o.Pod == u.Pod && o.PodUID == u.PodUID && o.Container == u.Container
	})
}

// entry returns the matching element of a list, or appends a new one. It returns nil if the list is full.
func entry[T any](list *[]T, element T, most int, meant func(*T) bool) *T {
	for i := range *list {
		if e := &(*list)[i]; meant(e) {
			return e
		}
	}
	if len(*list) == most {
		return nil
	}
	*list = append(*list, element)
	return &(*list)[len(*list)-1]
}
