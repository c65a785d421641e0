package meter

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// NewKepler returns a meter of the node counters in Kepler's /metrics. It supports the metric names before and
// since version 0.10. The zones overlap and are selected by [Root], as for RAPL. Kepler's attribution to pods is
// not used.
func NewKepler(c Config, log *slog.Logger) (*Scraped, error) {
	scale := func(d energy.Domain) int64 { return c.scale(NameKepler, d.Name) }
	return newScraped(c, NameKepler, c.KeplerURL, readKepler, scale, log), nil
}

const (
	keplerPrefix = "kepler-"
	keplerNew    = "kepler_node_cpu_joules_total"
	startTime    = "process_start_time_seconds"
)

// keplerOld are the metric names before 0.10. The platform is the whole machine, as measured by ACPI or a BMC.
var keplerOld = map[string]energy.DomainKind{
	"kepler_node_platform_joules_total": energy.Wall,
	"kepler_node_package_joules_total":  energy.Package,
	"kepler_node_core_joules_total":     energy.Core,
	"kepler_node_uncore_joules_total":   energy.Uncore,
	"kepler_node_dram_joules_total":     energy.DRAM,
}

// keplerZone is a counter with its identifying labels.
type keplerZone struct {
	kind energy.DomainKind
	path string // since 0.10: directory of the zone
	num  string // before 0.10: package number
	mode string // before 0.10: dynamic or idle, which must be added
	raw  uint64
}

var errTwoNodes = errors.New("metrics of more than one node")

func readKepler(body io.Reader) (page, error) {
	var p page
	var zones, old []keplerZone
	var fatal error
	node := ""
	err := eachSample(body, func(name string) bool {
		_, old := keplerOld[name]
		return old || name == keplerNew || name == startTime
	}, func(s *sample) error {
		if s.name == startTime {
			if _, err := strconv.ParseFloat(s.value, 64); err != nil {
				return errValue
			}
			p.start = s.value
			return nil
		}
		if of := cmp.Or(s.labels["node_name"], s.labels["exported_instance"], s.labels["instance"]); node == "" {
			node = of
		} else if of != node {
			fatal = errTwoNodes
		}
		kind, ok := keplerKind(s)
		if !ok {
			return nil
		}
		raw, err := s.microjoules(1e6)
		if err != nil {
			return err
		}
		if s.name != keplerNew {
			old = append(old, keplerZone{kind: kind, num: s.labels["package"], mode: s.labels["mode"], raw: raw})
		} else {
			zones = append(zones, keplerZone{kind: kind, path: s.labels["path"], raw: raw})
		}
		if len(zones)+len(old) > 2*maxSeries {
			fatal = fmt.Errorf("more than %d counters", 2*maxSeries)
		}
		return nil
	}, func(s *sample, err error) {
		if p.invalid = err; s.name != startTime {
			kind, known := keplerKind(s)
			p.reject(err, kind, known)
		}
	})
	if len(zones) > 0 {
		p.series = keplerSeries(zones)
	} else {
		p.addOldKepler(old)
	}
	p.distinct()
	return p, cmp.Or(err, fatal)
}

// keplerKind returns the kind of a counter, since 0.10 from its zone label, e.g. "package" or "package-0".
func keplerKind(s *sample) (energy.DomainKind, bool) {
	if kind, ok := keplerOld[s.name]; ok {
		return kind, true
	}
	zone, _, _ := strings.Cut(strings.ToLower(s.labels["zone"]), "-")
	return kindIn(zone, energy.Psys, energy.DRAM)
}

// keplerSeries numbers the zones of a kind by their paths, and drops MMIO zones that MSR zones duplicate.
func keplerSeries(zones []keplerZone) []series {
	mmio := func(z keplerZone) bool { return strings.Contains(z.path, mmioPrefix) }
	slices.SortFunc(zones, func(a, b keplerZone) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.path, b.path))
	})
	counted, byMSR := map[energy.DomainKind]int{}, map[energy.DomainKind]bool{}
	for _, z := range zones {
		byMSR[z.kind] = byMSR[z.kind] || !mmio(z)
	}
	var out []series
	for _, z := range zones {
		if byMSR[z.kind] && mmio(z) {
			continue
		}
		number := counted[z.kind]
		if d, ok := parseZone(path.Base(z.path)); ok && z.kind != energy.Psys {
			number = d.top
		}
		out = append(out, series{numbered(z.kind, keplerPrefix, number), z.raw})
		counted[z.kind]++
	}
	return out
}

// addOldKepler adds the counters, which are sums of their modes. It rejects counters without one of the modes.
func (p *page) addOldKepler(zones []keplerZone) {
	type key struct {
		kind energy.DomainKind
		num  string
	}
	sums, modes := map[key]uint64{}, map[key][]string{}
	for _, z := range zones {
		k := key{z.kind, z.num}
		sums[k] += z.raw
		modes[k] = append(modes[k], z.mode)
	}
	for k, raw := range sums {
		slices.Sort(modes[k])
		number, ok := smallNumber(cmp.Or(k.num, "0"))
		switch {
		case !slices.Equal(modes[k], []string{"dynamic", "idle"}) && !slices.Equal(modes[k], []string{""}):
			p.reject(fmt.Errorf("%s of package %.16q: want the modes dynamic and idle once, got %.32q", k.kind, k.num,
				modes[k]), k.kind, true)
		case !ok:
			p.reject(fmt.Errorf("%s of package %.16q: want a number", k.kind, k.num), k.kind, true)
		case raw > 0: // Kepler exports all domains, including those without a meter
			p.series = append(p.series, series{numbered(k.kind, keplerPrefix, number), raw})
		}
	}
}

// numbered returns a domain of another agent.
func numbered(k energy.DomainKind, prefix string, number int) energy.Domain {
	name := prefix + k.String()
	if k != energy.Wall && (k != energy.Psys || number > 0) {
		name += "-" + strconv.Itoa(number)
	}
	return energy.Domain{Kind: k, Name: name}
}

// distinct sorts the series and rejects domains that occur more than once, because their values would be ambiguous.
func (p *page) distinct() {
	slices.SortStableFunc(p.series, func(a, b series) int {
		return cmp.Or(cmp.Compare(a.domain.Kind, b.domain.Kind), strings.Compare(a.domain.Name, b.domain.Name))
	})
	var once []series
	for i, x := range p.series {
		if i > 0 && p.series[i-1].domain == x.domain || i+1 < len(p.series) && p.series[i+1].domain == x.domain {
			p.reject(fmt.Errorf("%s occurs twice", x.domain.Name), x.domain.Kind, true)
			continue
		}
		once = append(once, x)
	}
	p.series = once
}
