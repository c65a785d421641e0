package meter

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/agent/gpu"
	"github.com/kubenergy/kubenergy/energy"
)

// DCGM reads the boards on the page of NVIDIA's DCGM exporter, which collects every 30 seconds. The page names the pods
// that hold a board or an instance; where several share one in turn, it does not say who used it.
type DCGM struct {
	*Scraped
	gpus boards
}

// NewDCGM begins to ask the exporter.
func NewDCGM(c Config, log *slog.Logger) (*DCGM, error) {
	const collects = 30 * time.Second
	stale := max(c.stale(), 3*c.ScrapeInterval, 3*collects)
	return &DCGM{
		newScraped(c, NameDCGM, c.DCGMURL, readDCGM, nil, log), newBoards(&c, NameDCGM, energy.Derived, stale),
	}, nil
}

// Name implements Meter.
func (d *DCGM) Name() string { return NameDCGM }

// Domains implements Meter.
func (d *DCGM) Domains() []energy.Domain { return d.gpus.Domains() }

// Boards implements BoardMeter.
func (d *DCGM) Boards() []gpu.Board { return d.gpus.Boards() }

// Resume implements Meter.
func (d *DCGM) Resume(last []energy.Reading) { d.gpus.Resume(last) }

// Read implements Meter.
func (d *DCGM) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	answer, err := d.latest()
	if answer.at == 0 {
		return into, err
	}
	if answer.at != d.taken { // the boards are this goroutine's from now on
		d.taken = answer.at
		for i := range answer.boards {
			answer.boards[i].At = answer.at
		}
	}
	return d.gpus.readings(answer.boards, t.Now(), into)
}

const (
	dcgmEnergy      = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" // mJ
	dcgmPower       = "DCGM_FI_DEV_POWER_USAGE"              // W
	dcgmUtilization = "DCGM_FI_DEV_GPU_UTIL"                 // %; not of instances
	dcgmActive      = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"        // share; also of instances
	dcgmMemory      = "DCGM_FI_DEV_FB_USED"                  // MB

	dcgmBlank = math.MaxInt64 - 100 // this and more stand for: there is no value
)

// dcgmFields say what samples tell of a board, and of a part of it.
var dcgmFields = map[string]func(b *gpu.Board, p *gpu.Part, u *gpu.Use, v float64){
	dcgmEnergy: func(b *gpu.Board, _ *gpu.Part, _ *gpu.Use, v float64) { b.Millijoules = new(uint64(v)) },
	dcgmPower: func(b *gpu.Board, _ *gpu.Part, _ *gpu.Use, v float64) {
		b.Milliwatts = new(uint64(math.Round(v * 1000)))
	},
	dcgmUtilization: func(_ *gpu.Board, p *gpu.Part, _ *gpu.Use, v float64) {
		if math.IsNaN(p.Busy) {
			p.Busy = v / 100
		}
	},
	dcgmActive: func(_ *gpu.Board, p *gpu.Part, _ *gpu.Use, v float64) { p.Busy = v },
	dcgmMemory: func(_ *gpu.Board, _ *gpu.Part, u *gpu.Use, v float64) {
		if u != nil {
			u.Memory = uint64(v) << 20
		}
	},
}

func readDCGM(body io.Reader) (page, error) {
	var p page
	err := eachSample(body, func(name string) bool { return dcgmFields[name] != nil }, func(s *sample) error {
		v, err := strconv.ParseFloat(s.value, 64)
		if err != nil || s.labels["UUID"] == "" {
			return errValue
		}
		if !(v >= 0 && v < dcgmBlank) {
			return nil
		}
		i := slices.IndexFunc(p.boards, func(b gpu.Board) bool { return b.ID == s.labels["UUID"] })
		if i < 0 {
			if i = len(p.boards); i == maxBoards {
				return fmt.Errorf("more than %d boards", maxBoards)
			}
			p.boards = append(p.boards, gpu.Board{ID: s.labels["UUID"]})
		}
		b := &p.boards[i]
		part, err := dcgmPart(b, s)
		if err != nil {
			return err
		}
		dcgmFields[s.name](b, part, dcgmUse(part, s), v)
		return nil
	})
	for i := range p.boards {
		b := &p.boards[i]
		b.Parts = instancesOnly(b.Parts)
		for k := range b.Parts {
			if part := &b.Parts[k]; math.IsNaN(part.Busy) { // no field says so
				part.Busy = float64(min(len(part.Uses), 1))
			}
		}
	}
	return p, err
}

var errProfile = errors.New("its MIG profile cannot be read")

// dcgmPart returns the part of a board that a sample is of.
func dcgmPart(b *gpu.Board, s *sample) (*gpu.Part, error) {
	instance, sms := s.labels["GPU_I_ID"], 1.0
	if instance != "" {
		slices, _, ok := strings.Cut(s.labels["GPU_I_PROFILE"], "g.") // as 1g.10gb, or 1c.2g.10gb
		if _, after, compute := strings.Cut(slices, "c."); compute {
			slices = after
		}
		n, err := strconv.Atoi(slices)
		if !ok || err != nil || n < 1 || n > migSlices {
			return nil, errProfile
		}
		sms = float64(n) / migSlices
	}
	i := slices.IndexFunc(b.Parts, func(p gpu.Part) bool { return p.Instance == instance })
	if i < 0 {
		if i = len(b.Parts); i > migSlices {
			return nil, errProfile
		}
		b.Parts = append(b.Parts, gpu.Part{Instance: instance, SMs: sms, Busy: math.NaN()})
	}
	return &b.Parts[i], nil
}

// migSlices are those of the boards for data centres; on smaller ones, instances seem smaller than they are.
const migSlices = 7

// dcgmUse returns the container that a sample names; nil: it names none.
func dcgmUse(p *gpu.Part, s *sample) *gpu.Use {
	u := gpu.Use{
		Namespace: s.labels["namespace"],
		Pod:       s.labels["pod"], PodUID: s.labels["pod_uid"],
		Container: s.labels["container"],
	}
	if u.Pod == "" && u.PodUID == "" {
		return nil
	}
	for i := range p.Uses {
		if o := &p.Uses[i]; o.Namespace == u.Namespace && o.Pod == u.Pod && o.Container == u.Container {
			return o
		}
	}
	if len(p.Uses) == maxSeries {
		return nil
	}
	p.Uses = append(p.Uses, u)
	return &p.Uses[len(p.Uses)-1]
}

// instancesOnly drops samples of a whole board where the page also has samples of its MIG instances.
func instancesOnly(parts []gpu.Part) []gpu.Part {
	whole := func(p gpu.Part) bool { return p.Instance == "" }
	if slices.ContainsFunc(parts, func(p gpu.Part) bool { return !whole(p) }) {
		return slices.DeleteFunc(parts, whole)
	}
	return parts
}
