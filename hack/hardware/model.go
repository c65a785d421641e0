package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/hardware"
)

// Parameters of the power model. Memory has a fixed power per GB. The remaining power of a machine, per socket, is
//
//	ln watts = a [vendor] + b ln TDP + generation residual + model residual
//
// a and b are determined by weighted least squares. The weight of a result decreases by a factor of e for every
// three years of age. The generation residual is the median of the remaining residuals of its results, multiplied
// by n/(n+1) for n results so that small samples have little influence. The model residual is computed in the same
// way after the generation residual. CPUs without results are estimated from the TDP, and from their generation if
// it has results. A trend by year was evaluated, but it increased the errors for new generations because TDP
// already accounts for the trend.
const (
	forgets  = 3 // in years; older results are ignored if only the family of a server CPU is known
	earliest = 2012
	enough   = 10 // minimum number of results to estimate errors
	minTDP   = 35 // W, similar to the smallest servers with results; PCs with a TDP of 6 W have a different overhead
)

// architecture is a CPU generation.
type architecture struct {
	name    string
	names   string  // pattern for entire model names, normalized by hardware.Spell
	largest string  // model from which the power per thread is derived if there are no results
	cores   float64 // cores of the largest model
	group   string  // additional group for the results of this generation
	like    string  // generation to use as a substitute if there are no data
}

// Groups of generations, for CPUs with a known family only, for client CPUs, and for generations that labels cannot
// distinguish.
const (
	intelServer = "generic Intel server"
	intelClient = "generic Intel client"
	amdServer   = "generic AMD server"
	sameFamily  = "Intel Skylake or Cascade Lake"
)

const metals = `intel xeon (platinum|gold|silver|bronze) [3-8]`

var architectures = []architecture{
	{intelServer, "", "", 0, "", ""},
	{intelClient, "", "", 0, "", ""},
	{amdServer, "", "", 0, "", ""},
	{sameFamily, "", "", 0, "", ""},
	{"Intel Core 2", `intel xeon [elx][357][1-4]\d\d`, "", 0, "", ""},
	{"Intel Nehalem", `intel xeon [elwx][357]5\d\d`, "", 0, "", ""},
	{"Intel Westmere", `intel xeon [elwx][357]6\d\d`, "", 0, "", ""},
	{"Intel Sandy Bridge", `intel xeon e5 \d{4}[lw]?`, "", 0, "", ""},
	{"Intel Ivy Bridge", `intel xeon e[57] \d{4}[a-z]{0,2} v2`, "", 0, "", ""},
	{"Intel Haswell", `intel xeon e[57] \d{4}[a-z]{0,2} v3`, "", 0, "", ""},
	{"Intel Broadwell", `intel xeon e[57] \d{4}[a-z]{0,2} v4`, "", 0, "", ""},
	{"Intel Xeon E3", `intel xeon e3 \d{4}[a-z]{0,2}( v[2-6])?`, "", 0, intelClient, ""},
	{"Intel Coffee Lake", `intel xeon e 2[12]\d\d[a-z]{0,2}`, "Intel Xeon E-2288G", 8, intelClient, ""},
	{"Intel Rocket Lake", `intel xeon e 23\d\d[a-z]?`, "Intel Xeon E-2388G", 8, intelClient, ""},
	{"Intel Raptor Lake", `intel xeon e 24\d\d[a-z]?`, "Intel Xeon E-2488", 8, intelClient, ""},
	{"Intel Skylake", metals + `1\d\d[a-z]{0,2}`, "Intel Xeon Platinum 8180", 28, sameFamily, ""},
	{"Intel Cascade Lake", metals + `2\d\d[a-z]{0,2}`, "Intel Xeon Platinum 8280", 28, sameFamily, ""},
	{"Intel Cooper Lake", metals + `3\d\dhl?`, "Intel Xeon Platinum 8380HL", 28, "", ""},
	{"Intel Ice Lake", metals + `3\d\d([a-gi-z][a-z]?)?`, "Intel Xeon Platinum 8380", 40, "", ""},
	{
		"Intel Sapphire Rapids", metals + `4\d\d[a-z]{0,2}\+?|intel xeon max 94\d\d`,
		"Intel Xeon Platinum 8490H", 60, "", "",
	},
	{"Intel Emerald Rapids", metals + `5\d\d[a-z]{0,2}\+?`, "Intel Xeon Platinum 8592+", 64, "", ""},
	{"Intel Granite Rapids", `intel xeon 6[579]\d\dp( [bc])?`, "Intel Xeon 6980P", 128, "", ""},
	{"AMD EPYC 1st Gen", `amd epyc 7[0-9a-z]{2}1p?`, "AMD EPYC 7601", 32, "", ""},
	{"AMD EPYC 2nd Gen", `amd epyc 7[0-9a-z]{2}2p?`, "AMD EPYC 7742", 64, "", ""},
	{"AMD EPYC 3rd Gen", `amd epyc 7[0-9a-z]{2}3[px]?`, "AMD EPYC 7763", 64, "", ""},
	{"AMD EPYC 4th Gen", `amd epyc [89][0-9a-z]{2}4[a-z]{0,2}`, "AMD EPYC 9654", 96, "", ""},
	{"AMD EPYC 5th Gen", `amd epyc 9[0-9a-z]{2}5[a-z]?`, "AMD EPYC 9755", 128, "", ""},
	{"Ampere Altra", `ampere altra( .*)?`, "", 0, "", "AMD EPYC 2nd Gen"},
	{"AWS Graviton2", "", "", 0, "", "AMD EPYC 2nd Gen"},
	{"AWS Graviton3", "", "", 0, "", "AMD EPYC 2nd Gen"},
	{"AWS Graviton3E", "", "", 0, "", "AMD EPYC 2nd Gen"},
	{"AWS Graviton4", "", "", 0, "", "AMD EPYC 2nd Gen"},
	{"Google Axion", "", "", 0, "", "AMD EPYC 2nd Gen"},
}

// listed matches the CPUs in the list of TDPs that are added to the catalogue: server CPUs and PC CPUs since about
// 2012.
var listed = regexp.MustCompile(`^(Intel Xeon|AMD EPYC|AMD Opteron|AMD Ryzen|Intel Core (i\d|Ultra|\d )|` +
	`Intel (Processor )?N\d|Intel (Celeron|Pentium) (Silver |Gold )?[GJN]\d)`)

// power contains the power at idle and at full load, in watts, or the logarithms of both.
type power [2]float64

func scaled(p power, by float64) power { return power{p[0] * by, p[1] * by} }

var perGB = power{float64(hardware.TypicalMemory.IdlePowerPerGB), float64(hardware.TypicalMemory.MaxPowerPerGB)}

// model contains the fitted parameters. Generations and CPU models share the maps: generations are keyed by name
// and CPU models by normalized spelling.
type model struct {
	tdps    map[string]tdp
	slope   power
	levels  map[string]power // by vendor
	rests   map[string]power // residuals of generations and models
	counts  map[string]int   // number of results of generations and models
	threads map[string]power // power per thread of generations and groups, in watts
	cores   map[string]power // cores per socket, and cores per watt of TDP
}

type tdp struct {
	name  string
	watts float64
}

// row is a benchmark result with the known properties of its CPU.
type row struct {
	hardware.Result
	cpu
	socket power // per socket, without memory
}

type cpu struct {
	spelling string
	architecture
	tdp float64
}

func (c cpu) vendor() string {
	vendor, _, _ := strings.Cut(c.spelling, " ")
	return vendor
}

// family returns the group to use if only the family of the CPU is known, or an empty string if there is no such
// group.
func (c cpu) family() string {
	if c.group == intelClient {
		return intelClient
	}
	return map[string]string{"intel": intelServer, "amd": amdServer}[c.vendor()]
}

func (m *model) cpu(name string) cpu {
	c := cpu{spelling: hardware.Spell(name)}
	c.tdp = m.tdps[c.spelling].watts
	for _, a := range architectures {
		if a.names != "" && regexp.MustCompile("^(?:"+a.names+")$").MatchString(c.spelling) {
			c.architecture = a
		}
	}
	return c
}

func readResults() []hardware.Result {
	text, err := grid.ReadFile(filepath.Join(data, "ccf/SPECpower-2023-05-23.csv.gz"))
	if err != nil {
		log.Fatal(err)
	}
	all, err := hardware.ReadResults(text)
	if err != nil {
		log.Fatal(err)
	}
	return all
}

// readTDPs returns TDPs by normalized spelling. The first of several entries with the same spelling is used.
func readTDPs() map[string]tdp {
	all := map[string]tdp{}
	for _, r := range read("codecarbon_cpu_tdp.csv.gz") {
		watts, err := strconv.ParseFloat(r["TDP"], 64)
		spelling := hardware.Spell(r["Name"])
		if _, seen := all[spelling]; err == nil && watts >= minTDP && !seen && listed.MatchString(r["Name"]) {
			all[spelling] = tdp{r["Name"], watts}
		}
	}
	return all
}

// fit fits the model to the results that were published until the given time.
func fit(results []hardware.Result, tdps map[string]tdp, at time.Time) *model {
	m := &model{tdps: tdps, rests: map[string]power{}, counts: map[string]int{}}
	var all, known []row
	for _, r := range results {
		x := row{Result: r, cpu: m.cpu(r.CPU)}
		for i, w := range [...]float64{float64(r.Idle), float64(r.Full)} {
			// The power of idle memory may be overestimated, so at least 30 % of the power is attributed to the
			// remaining machine.
			x.socket[i] = max(w-r.MemoryGB*perGB[i], 0.3*w) / float64(r.Sockets)
		}
		if all = append(all, x); x.tdp > 0 {
			known = append(known, x)
		}
	}
	m.threads, _ = medians(all, func(x row) []string {
		if x.Published.After(at.AddDate(-forgets, 0, 0)) {
			return []string{x.name, x.group, x.family()}
		}
		return []string{x.name, x.group}
	}, func(x row) power { return scaled(x.socket, float64(x.Sockets)/float64(x.Threads)) })
	m.cores, _ = medians(known, func(x row) []string { return []string{x.spelling, x.name} }, func(x row) power {
		cores := float64(x.Threads) / float64(x.Sockets) / 2
		return power{cores, cores / x.tdp}
	})
	m.regress(known, at)
	m.learn(known, func(x row) []string { return []string{x.name} })
	m.learn(known, func(x row) []string { return []string{x.spelling} })
	return m
}

// medians returns the median and the number of rows of each group.
func medians(rows []row, groups func(row) []string, value func(row) power) (map[string]power, map[string]int) {
	values, middle, counts := map[string][2][]float64{}, map[string]power{}, map[string]int{}
	for _, x := range rows {
		v := value(x)
		for _, group := range slices.Compact(groups(x)) {
			of := values[group]
			values[group] = [2][]float64{append(of[0], v[0]), append(of[1], v[1])}
		}
	}
	delete(values, "")
	for group, of := range values {
		n := len(of[0])
		slices.Sort(of[0])
		slices.Sort(of[1])
		counts[group] = n
		middle[group] = power{(of[0][(n-1)/2] + of[0][n/2]) / 2, (of[1][(n-1)/2] + of[1][n/2]) / 2}
	}
	return middle, counts
}

// learn adds the median residuals of groups of results to the model.
func (m *model) learn(known []row, groups func(row) []string) {
	rests, counts := medians(known, groups, func(x row) (rest power) {
		for i, w := range m.socket(x.cpu) {
			rest[i] = math.Log(x.socket[i] / w)
		}
		return rest
	})
	for group, rest := range rests {
		n := float64(counts[group])
		m.rests[group] = scaled(rest, n/(n+1))
	}
	maps.Copy(m.counts, counts)
}

// socket returns the estimated power of a socket without memory, in watts.
func (m *model) socket(c cpu) (watts power) {
	for i := range watts {
		watts[i] = math.Exp(m.levels[c.vendor()][i] + m.slope[i]*math.Log(c.tdp) + m.rests[c.name][i] +
			m.rests[c.spelling][i])
	}
	watts[0] = min(watts[0], watts[1])
	return watts
}

// regress fits a common slope and one level per vendor by weighted least squares.
func (m *model) regress(known []row, at time.Time) {
	type sums struct{ w, x, y, xx, xy float64 }
	m.levels = map[string]power{}
	for i := range m.slope {
		vendors := map[string]sums{}
		for _, r := range known {
			if r.Published.Year() >= earliest {
				w := math.Exp(-at.Sub(r.Published).Hours() / 24 / 365 / forgets)
				x, y, s := math.Log(r.tdp), math.Log(r.socket[i]), vendors[r.vendor()]
				vendors[r.vendor()] = sums{s.w + w, s.x + w*x, s.y + w*y, s.xx + w*x*x, s.xy + w*x*y}
			}
		}
		var xx, xy float64
		for _, vendor := range slices.Sorted(maps.Keys(vendors)) {
			s := vendors[vendor]
			xx, xy = xx+s.xx-s.x*s.x/s.w, xy+s.xy-s.x*s.y/s.w
		}
		m.slope[i] = xy / xx
		for vendor, s := range vendors {
			level := m.levels[vendor]
			level[i] = (s.y - m.slope[i]*s.x) / s.w
			m.levels[vendor] = level
		}
	}
}

// thread returns the power of a thread of a generation, in watts, and the basis and the source of the value.
func (m *model) thread(a architecture) (watts power, basis, source string) {
	watts, known := m.threads[a.name]
	switch {
	case known && strings.HasPrefix(a.name, "generic "):
		return watts, "family", "median of SPECpower_ssj2008 results"
	case known:
		return watts, "threads", "median of SPECpower_ssj2008 results"
	case a.largest != "":
		c := m.cpu(a.largest)
		return scaled(m.socket(c), 1/(2*a.cores)), "threads", fmt.Sprintf("%s by a TDP of %v W", a.largest, c.tdp)
	}
	return m.threads[a.like], "stand-in", "those of " + a.like
}

// coresOf returns the number of cores per socket from results, or an estimate from the TDP. It returns 0 for PCs,
// which have one socket.
func (m *model) coresOf(c cpu) float64 {
	ratio := m.cores[c.name][1]
	if ratio == 0 && c.largest != "" {
		ratio = c.cores / m.cpu(c.largest).tdp
	}
	return cmp.Or(m.cores[c.spelling][0], ratio*c.tdp)
}

// tables returns the tables of the catalogue according to the model.
func (m *model) tables(measured []*hardware.Errors, machines []instance) *hardware.Tables {
	t := &hardware.Tables{
		Attribution: attribution, Errors: measured, CPUs: map[string]hardware.TableCPU{},
		Instances: map[string]map[string]hardware.Instance{},
	}
	for _, a := range architectures {
		// The entry describes a socket with one thread, because the models that clouds use and their thread counts
		// are unknown.
		watts, basis, source := m.thread(a)
		cpu := entry(watts, 4, "per hardware thread, "+source, basis)
		cpu.NumCores, cpu.ThreadsPerCore, cpu.Generic = 1, 1, basis == "family"
		t.CPUs[a.name] = cpu
		if a.names != "" {
			t.Generations = append(t.Generations, hardware.Generation{Models: a.names, Architecture: a.name})
		}
	}
	for spelling, known := range m.tdps {
		c := m.cpu(known.name)
		basis, source := "TDP", fmt.Sprintf("SPECpower_ssj2008 by a TDP of %v W", known.watts)
		if n := m.counts[spelling]; n > 0 {
			basis, source = "model", fmt.Sprintf("%d results of SPECpower_ssj2008", n)
		} else if m.counts[c.name] > 0 {
			basis = "TDP and generation"
		}
		cpu := entry(m.socket(c), 1, source, basis)
		cpu.NumCores = int64(math.RoundToEven(m.coresOf(c))) // 0 for PCs, which have one socket
		t.CPUs[known.name] = cpu
	}
	for _, i := range machines {
		if t.Instances[i.provider] == nil {
			t.Instances[i.provider] = map[string]hardware.Instance{}
		}
		t.Instances[i.provider][i.name] = hardware.Instance{
			CPUModel: mixed(t.CPUs, i.architectures), NumCPUs: i.cpus, MemoryType: "DDR4",
			TotalMemory: int64(rounded(i.gib, 3) * 1024), GPUModel: i.gpu, NumGPUs: i.gpus,
		}
	}
	return t
}

func entry(watts power, digits int, source, basis string) hardware.TableCPU {
	return hardware.TableCPU{Basis: basis, CPU: hardware.CPU{
		IdlePower: energy.Watts(rounded(watts[0], digits)), MaxPower: energy.Watts(rounded(watts[1], digits)),
		Source: source,
	}}
}

// mixed returns the CPU model for an instance type that runs on any of the architectures. Its power is the mean of
// the architectures, because the provider may assign any of them.
func mixed(cpus map[string]hardware.TableCPU, architectures []string) string {
	name := strings.Join(architectures, " or ")
	if _, known := cpus[name]; known {
		return name
	}
	mean := entry(power{}, 0, "mean of what the provider may give, per hardware thread", "threads")
	mean.NumCores, mean.ThreadsPerCore = 1, 1
	share := 1 / energy.Watts(len(architectures))
	for _, a := range architectures {
		cpu, ok := cpus[a]
		if !ok {
			log.Fatalf("unknown architecture %q", a)
		}
		mean.IdlePower += share * cpu.IdlePower
		mean.MaxPower += share * cpu.MaxPower
	}
	cpus[name] = mean
	return name
}

func rounded(v float64, digits int) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'f', digits, 64), 64) // cannot fail for a formatted float
	return v
}

// write writes the tables to tables.json with one line per entry.
func write(t *hardware.Tables) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	lines := bytes.ReplaceAll(text, []byte("},"), []byte("},\n"))
	return os.WriteFile("tables.json", append(lines, '\n'), 0o644) //nolint:gosec // for all who may read the folder
}

// score compares the estimates of the catalogue with results that were not used to build it, and prints and returns
// the errors.
func (m *model) score(machines []instance, results []hardware.Result) (measured []*hardware.Errors) {
	byHand, err := os.ReadFile("hardware.yaml")
	if err != nil {
		log.Fatal(err)
	}
	c, err := m.tables(nil, machines).Catalog(byHand)
	if err != nil {
		log.Fatal(err)
	}
	// The number of sockets of a node is usually unknown, and often only the generation or the family of the CPU is
	// known. Each basis is scored only the first time.
	named := func(r hardware.Result) string { return r.CPU }
	for _, way := range []struct {
		what    string
		name    func(hardware.Result) string
		sockets bool
	}{
		{"generations", func(r hardware.Result) string { return m.cpu(r.CPU).name }, false},
		{"families", func(r hardware.Result) string { return m.cpu(r.CPU).family() }, false},
		{"models with estimated sockets", named, false},
		{"models with known sockets", named, true},
	} {
		var all []hardware.Result
		for _, r := range results {
			if !way.sockets {
				r.Sockets = 0
			}
			if r.CPU = way.name(r); r.CPU != "" {
				all = append(all, r)
			}
		}
		s := c.Score(all)
		log.Printf("%s: %d of %d unknown", way.what, s.Unknown, s.Results)
		for _, e := range s.Errors {
			log.Printf("  %-35s%4d: median error (p90) at idle %.3f (%.3f), at full load %.3f (%.3f)", e.Basis,
				e.Results, e.IdleMedian, e.IdleP90, e.FullMedian, e.FullP90)
			seen := slices.ContainsFunc(measured, func(o *hardware.Errors) bool { return o.Basis == e.Basis })
			if e.Basis != "all" && e.Results >= enough && !seen {
				measured = append(measured, &hardware.Errors{
					Basis: e.Basis, Results: e.Results, IdleMedian: rounded(e.IdleMedian, 3),
					FullMedian: rounded(e.FullMedian, 3),
				})
			}
		}
	}
	return measured
}
