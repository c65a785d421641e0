package meter

import (
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

// NewDCGM begins to read the boards on the page of NVIDIA's DCGM exporter, which collects every 30 seconds. The page
// names the pods that hold a board or an instance; where several share one in turn, it does not say who used it.
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
	dcgmUtilization = "DCGM_FI_DEV_GPU_UTIL"                 // %; not of instances
	dcgmActive      = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"        // share; also of instances
	dcgmMemory      = "DCGM_FI_DEV_FB_USED"                  // MB

	dcgmBlank = math.MaxInt64 - 100 // this and more stand for: there is no value
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
	})
	for i := range p.boards {
		b := &p.boards[i]
		if len(b.Parts) > 1 { // the page has samples of the board and of its instances: the latter count
			b.Parts = slices.DeleteFunc(b.Parts, func(p gpu.Part) bool { return p.Instance == "" })
		}
		for k := range b.Parts {
			if part := &b.Parts[k]; math.IsNaN(part.Busy) { // no field says so
				part.Busy = float64(min(len(part.Uses), 1))
			}
		}
	}
	return p, err
}

// migProfile is as 1g.10gb, or 1c.2g.10gb. Of the slices of boards for data centres; on smaller ones, instances seem
// smaller than they are.
var migProfile = regexp.MustCompile(`^(?:\dc\.)?([1-7])g\.`)

const migSlices = 7

// useDCGM notes what a sample tells of a board, of a part of it, and of the container that it names, if it names one.
func useDCGM(boards *[]gpu.Board, s *sample, v float64) error {
	read := gpu.Part{Instance: s.labels["GPU_I_ID"], SMs: 1, Busy: math.NaN()}
	if read.Instance != "" {
		profile := migProfile.FindStringSubmatch(s.labels["GPU_I_PROFILE"])
		if profile == nil {
			return fmt.Errorf("its MIG profile %q cannot be read", s.labels["GPU_I_PROFILE"])
		}
		read.SMs = float64(profile[1][0]-'0') / migSlices
	}
	b := entry(boards, gpu.Board{ID: s.labels["UUID"]}, maxBoards, func(b *gpu.Board) bool {
		return b.ID == s.labels["UUID"]
	})
	if b == nil {
		return fmt.Errorf("more than %d boards", maxBoards)
	}
	part := entry(&b.Parts, read, migSlices+1, func(p *gpu.Part) bool { return p.Instance == read.Instance })
	if part == nil {
		return fmt.Errorf("more than %d instances of a board", migSlices)
	}
	use := useOf(part, s)
	switch {
	case s.name == dcgmEnergy:
		b.Millijoules = new(uint64(v))
	case s.name == dcgmPower:
		b.Milliwatts = new(uint32(math.Round(min(v*1000, math.MaxUint32)))) // so much is no power to a meter
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

// useOf returns the container that a sample names; nil: it names none.
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

// entry returns the element of a list that is meant, or adds it; nil: there are too many.
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
