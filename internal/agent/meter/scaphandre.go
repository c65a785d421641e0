package meter

import (
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// NewScaphandre returns a meter of the counters in Scaphandre's /metrics: psys, else the sockets and their DRAM,
// else the sum for the host, which covers the same. The counters are raw hardware values with an unknown range, so
// each wraparound starts a new run. Only the configured factor is applied.
func NewScaphandre(c Config, log *slog.Logger) (*Scraped, error) {
	scale := func(d energy.Domain) int64 { return c.scaphandreScale(c.scale(NameScaphandre, d.Name)) }
	return newScraped(c, NameScaphandre, c.ScaphandreURL, readScaphandre, scale, log), nil
}

var scaphandreNames = []string{
	"scaph_host_rapl_psys_microjoules", "scaph_socket_energy_microjoules", "scaph_domain_energy_microjoules",
	"scaph_host_energy_microjoules",
}

// readScaphandre returns the non-overlapping counters in Scaphandre's metrics, and their parts.
func readScaphandre(body io.Reader) (page, error) {
	var p page
	var host, rest []series
	err := eachSample(body, func(name string) bool {
		return slices.Contains(scaphandreNames, strings.TrimSuffix(name, "_total"))
	}, func(s *sample) error {
		d, ok := scaphandreDomain(s)
		if !ok {
			return nil
		}
		raw, err := s.microjoules(1)
		switch {
		case err != nil:
			return err
		case d.Name == scaphandreHost:
			host = append(host, series{d, raw})
		default:
			rest = append(rest, series{d, raw})
		}
		return nil
	}, func(s *sample, err error) {
		d, ok := scaphandreDomain(s)
		p.reject(err, d.Kind, ok)
	})
	covers := func(x series) bool { return x.domain.Kind == energy.Psys || x.domain.Kind == energy.Package }
	if p.series = rest; !slices.ContainsFunc(rest, covers) {
		p.series = host
	}
	p.distinct()
	return p, err
}

const (
	scaphandrePrefix = "scaphandre-"
	scaphandreHost   = scaphandrePrefix + "host"
)

func scaphandreDomain(s *sample) (energy.Domain, bool) {
	socket, ok := smallNumber(s.labels["socket_id"])
	switch strings.TrimSuffix(s.name, "_total") {
	case "scaph_host_rapl_psys_microjoules":
		return energy.Domain{Kind: energy.Psys, Name: scaphandrePrefix + "psys"}, true
	case "scaph_host_energy_microjoules":
		return energy.Domain{Kind: energy.Package, Name: scaphandreHost}, true
	case "scaph_socket_energy_microjoules":
		return numbered(energy.Package, scaphandrePrefix, socket), ok
	}
	k, known := kindIn(s.labels["domain_name"], energy.Core, energy.DRAM)
	return numbered(k, scaphandrePrefix, socket), ok && known
}
