package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// A server is one published result of SPECpower_ssj2008, with the measured system.
type server struct {
	name, system, published string
	cores, threads          int
	idle, full              energy.Watts
}

// servers contains servers of different age and efficiency, oldest first. Idle and full-load power are measured at
// the wall. The 840 results up to May 2023 are collected in cloud-carbon-footprint/ccf-coefficients.
var servers = []server{
	{"r610-2010", "Dell PowerEdge R610 (2 × Intel Xeon X5670)", "May 2010", 12, 24, 62.3, 244},
	{"r620-2012", "Dell PowerEdge R620 (2 × Intel Xeon E5-2670)", "Mar 2012", 16, 32, 54.1, 243},
	{"tx100-2012", "Fujitsu PRIMERGY TX100 S3p (Intel Xeon E3-1240 v2)", "Aug 2012", 4, 8, 14.1, 72.5},
	{"rx2540-2014", "Fujitsu PRIMERGY RX2540 M1 (2 × Intel Xeon E5-2699 v3)", "Oct 2014", 36, 72, 39, 271},
	{"dl360-2018", "HPE ProLiant DL360 Gen10 (Intel Xeon Platinum 8180)", "Sep 2018", 28, 56, 38.9, 237},
	{"tx1320-2019", "Fujitsu PRIMERGY TX1320 M4 (Intel Xeon E-2288G)", "Nov 2019", 8, 16, 16.3, 56},
	{"sr655-2021", "Lenovo ThinkSystem SR655 (AMD EPYC 7763)", "Jun 2021", 64, 128, 52.5, 228},
	{"dl345-2022", "HPE ProLiant DL345 Gen11 (AMD EPYC 9654P)", "Nov 2022", 96, 192, 72.2, 373},
	{"rx2540-2023", "Fujitsu PRIMERGY RX2540 M7 (2 × Intel Xeon Platinum 8490H)", "Feb 2023", 120, 240, 184, 1043},
}

// SPECpower does not cover sleep, so these values are estimates. A suspended server still supplies its memory, its
// management controller and a standby supply, which takes 5 to 15 W or about 5 % of full load. Waking up takes
// about two minutes at a power midway between idle and full load.
const (
	sleepShare = 0.05
	sleepLeast = energy.Watts(5)
	bootTime   = 2 * time.Minute
)

// profile returns the power model of s. It is linear, because only two points of each result are used.
func (s *server) profile() *energy.Profile {
	return &energy.Profile{
		Name:     s.name,
		Idle:     s.idle,
		Max:      s.full,
		Exponent: 1,
		Sleep:    max(sleepLeast, sleepShare*s.full),
		WakeUp:   ((s.idle + s.full) / 2).For(bootTime),

		BootSeconds: bootTime.Seconds(),

		Quality: energy.Estimated,
		Source: fmt.Sprintf("SPECpower_ssj2008, %s, %s, %d cores, %d threads: idle and full load are measured; "+
			"linear in between, sleep and wake-up are estimates",
			s.system, s.published, s.cores, s.threads),
	}
}

// profiles caches profiles by name, so that nodes of one kind share a profile.
type profiles map[string]*energy.Profile

func (p profiles) named(name string) (*energy.Profile, error) {
	if known := p[name]; known != nil {
		return known, nil
	}
	if name == unlimitedProfile {
		p[name] = &energy.Profile{
			Name: name, Max: unlimitedCores, Exponent: 1, Quality: energy.Estimated,
			Source: "no hardware: power is proportional to busy cores, as in experiments without capacity limits",
		}
		return p[name], nil
	}
	i := slices.IndexFunc(servers, func(s server) bool { return s.name == name })
	if i < 0 {
		names := sliceutil.Map(servers, func(s server) string { return s.name })
		return nil, fmt.Errorf("unknown power profile %q: have %s", name, strings.Join(names, ", "))
	}
	p[name] = servers[i].profile()
	return p[name], nil
}
