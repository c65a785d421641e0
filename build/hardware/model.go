package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io/fs"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/hardware"
)

// The model. Memory has its watts by the GB. What is left of a machine's watts, by socket, is
//
//	ln watts = a + b ln TDP + c [AMD] + of the generation + of the model
//
// Weighted least squares find a, b and c: a result weighs 1/e for each three years that it is older. The generation
// adds the median of what its results leave, times n/(n+1) for n results, so that few count little; so does the model
// after it. CPUs without results have the TDP, and their generation where it has results. A trend by year was tried and
// made new generations worse: TDP carries it.
const (
	forgets  = 3.0 // years
	earliest = 2012
	enough   = 10 // results that errors can be told from
	leastTDP = 35 // W, about that of the smallest servers with results: what a PC of 6 W draws besides is not in them
)

// architecture is a generation of CPUs.
type architecture struct {
	name string
	// names of its models, whole, as hardware.Spell has them
	names string
	// largest model and its cores, for watts of a thread where there are no results
	largest string
	cores   float64
	// like names the generation whose watts of a thread stand in where neither is known
	like string
	// group has the watts of a thread of several generations
	group string
}

// Groups of generations: what families of CPUs and client parts are taken for, and what no label tells apart.
const (
	intelServer  = "generic Intel server"
	intelClient  = "generic Intel client"
	amdServer    = "generic AMD server"
	sameFamily   = "Intel Skylake or Cascade Lake"
	familyRecent = 3 // years: older results say nothing of a server of which only the family is known
)

const metals = `intel xeon (platinum|gold|silver|bronze) [3-8]`

var architectures = []architecture{
	{name: intelServer},
	{name: intelClient},
	{name: amdServer},
	{name: sameFamily},
	{name: "Intel Core 2", names: `intel xeon [elx][357][1-4]\d\d`},
	{name: "Intel Nehalem", names: `intel xeon [elwx][357]5\d\d`},
	{name: "Intel Westmere", names: `intel xeon [elwx][357]6\d\d`},
	{name: "Intel Sandy Bridge", names: `intel xeon e5 \d{4}[lw]?`},
	{name: "Intel Ivy Bridge", names: `intel xeon e[57] \d{4}[a-z]{0,2} v2`},
	{name: "Intel Haswell", names: `intel xeon e[57] \d{4}[a-z]{0,2} v3`},
	{name: "Intel Broadwell", names: `intel xeon e[57] \d{4}[a-z]{0,2} v4`},
	{name: "Intel Xeon E3", names: `intel xeon e3 \d{4}[a-z]{0,2}( v[2-6])?`, group: intelClient},
	{
		name: "Intel Skylake", names: metals + `1\d\d[a-z]{0,2}`, group: sameFamily,
		largest: "Intel Xeon Platinum 8180", cores: 28,
	},
	{
		name: "Intel Cascade Lake", names: metals + `2\d\d[a-z]{0,2}`, group: sameFamily,
		largest: "Intel Xeon Platinum 8280", cores: 28,
	},
	{name: "Intel Cooper Lake", names: metals + `3\d\dhl?`, largest: "Intel Xeon Platinum 8380HL", cores: 28},
	{name: "Intel Ice Lake", names: metals + `3\d\d([a-gi-z][a-z]?)?`, largest: "Intel Xeon Platinum 8380", cores: 40},
	{
		name: "Intel Sapphire Rapids", names: metals + `4\d\d[a-z]{0,2}\+?|intel xeon max 94\d\d`,
		largest: "Intel Xeon Platinum 8490H", cores: 60,
	},
	{name: "Intel Emerald Rapids", names: metals + `5\d\d[a-z]{0,2}\+?`, largest: "Intel Xeon Platinum 8592+", cores: 64},
	{name: "Intel Granite Rapids", names: `intel xeon 6[579]\d\dp( [bc])?`, largest: "Intel Xeon 6980P", cores: 128},
	{
		name: "Intel Coffee Lake", names: `intel xeon e 2[12]\d\d[a-z]{0,2}`, group: intelClient,
		largest: "Intel Xeon E-2288G", cores: 8,
	},
	{
		name: "Intel Rocket Lake", names: `intel xeon e 23\d\d[a-z]?`, group: intelClient,
		largest: "Intel Xeon E-2388G", cores: 8,
	},
	{
		name: "Intel Raptor Lake", names: `intel xeon e 24\d\d[a-z]?`, group: intelClient,
		largest: "Intel Xeon E-2488", cores: 8,
	},
	{name: "AMD EPYC 1st Gen", names: `amd epyc 7[0-9a-z]{2}1p?`, largest: "AMD EPYC 7601", cores: 32},
	{name: "AMD EPYC 2nd Gen", names: `amd epyc 7[0-9a-z]{2}2p?`, largest: "AMD EPYC 7742", cores: 64},
	{name: "AMD EPYC 3rd Gen", names: `amd epyc 7[0-9a-z]{2}3[px]?`, largest: "AMD EPYC 7763", cores: 64},
	{name: "AMD EPYC 4th Gen", names: `amd epyc [89][0-9a-z]{2}4[a-z]{0,2}`, largest: "AMD EPYC 9654", cores: 96},
	{name: "AMD EPYC 5th Gen", names: `amd epyc 9[0-9a-z]{2}5[a-z]?`, largest: "AMD EPYC 9755", cores: 128},
	{name: "Ampere Altra", names: `ampere altra( .*)?`, like: "AMD EPYC 2nd Gen"},
	{name: "AWS Graviton2", like: "AMD EPYC 2nd Gen"},
	{name: "AWS Graviton3", like: "AMD EPYC 2nd Gen"},
	{name: "AWS Graviton3E", like: "AMD EPYC 2nd Gen"},
	{name: "AWS Graviton4", like: "AMD EPYC 2nd Gen"},
	{name: "Google Axion", like: "AMD EPYC 2nd Gen"},
}

// listed are the CPUs that the catalogue takes from the list of TDPs: those of servers, and of PCs since about 2012.
var listed = regexp.MustCompile(`^(Intel Xeon|AMD EPYC|AMD Opteron|AMD Ryzen|Intel Core (i\d|Ultra|\d )|` +
	`Intel (Processor )?N\d|Intel (Celeron|Pentium) (Silver |Gold )?[GJN]\d)`)

// power is idle and full-load watts, or the logarithms of both.
type power [2]float64

// model is what the results teach.
type model struct {
	tdps        map[string]tdp
	base        [2][3]float64 // a, b and c of idle and full load
	generations map[string]power
	models      map[string]power
	counts      map[string]int // results of a generation, and of a model
	threads     map[string]power
	ratios      map[string]float64 // cores of a socket for each watt of TDP, by generation
	cores       map[string]float64 // of a socket, by model
}

type tdp struct {
	name  string
	watts float64
}

// row is a result with what is known of its CPU.
type row struct {
	hardware.Result
	model, generation string
	tdp               float64
	socket            power // watts of each, without memory
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

// readTDPs returns TDPs by the spelling of names. Of several of one spelling the first one counts.
func readTDPs() map[string]tdp {
	all := map[string]tdp{}
	for _, r := range read("codecarbon_cpu_tdp.csv.gz") {
		watts, err := strconv.ParseFloat(r["TDP"], 64)
		spelling := hardware.Spell(r["Name"])
		if _, seen := all[spelling]; err == nil && watts >= leastTDP && !seen && listed.MatchString(r["Name"]) {
			all[spelling] = tdp{r["Name"], watts}
		}
	}
	return all
}

func generationOf(spelling string) (a architecture) {
	for _, a := range architectures {
		if a.names != "" && regexp.MustCompile("^(?:"+a.names+")$").MatchString(spelling) {
			return a
		}
	}
	return a
}

// familyOf returns the group that a CPU is in of which the family alone is known; "" if there is none.
func familyOf(spelling string) string {
	group := generationOf(spelling).group
	switch {
	case group == intelClient:
		return group
	case strings.HasPrefix(spelling, "intel "):
		return intelServer
	case strings.HasPrefix(spelling, "amd "):
		return amdServer
	}
	return ""
}

func (m *model) read(r hardware.Result) row {
	x := row{Result: r, model: hardware.Spell(r.CPU)}
	x.generation, x.tdp = generationOf(x.model).name, m.tdps[x.model].watts
	for i, w := range [...]float64{float64(r.Idle), float64(r.Full)} {
		// Idle memory is counted generously; no machine is memory alone.
		x.socket[i] = max(w-r.MemoryGB*perGB[i], 0.3*w) / float64(r.Sockets)
	}
	return x
}

var perGB = power{float64(hardware.TypicalMemory.IdlePowerPerGB), float64(hardware.TypicalMemory.MaxPowerPerGB)}

func features(spelling string, tdp float64) [3]float64 {
	amd := 0.0
	if strings.HasPrefix(spelling, "amd ") {
		amd = 1
	}
	return [3]float64{1, math.Log(tdp), amd}
}

// fit learns from results as they were known at a time.
func fit(results []hardware.Result, tdps map[string]tdp, at time.Time) *model {
	m := &model{
		tdps: tdps, generations: map[string]power{}, models: map[string]power{}, counts: map[string]int{},
		threads: map[string]power{}, ratios: map[string]float64{}, cores: map[string]float64{},
	}
	var known []row
	perThread, ratios, cores := map[string][]power{}, map[string][]float64{}, map[string][]float64{}
	for _, r := range results {
		x := m.read(r)
		groups := []string{x.generation, generationOf(x.model).group}
		if r.Published.After(at.AddDate(-familyRecent, 0, 0)) {
			groups = append(groups, familyOf(x.model))
		}
		for _, group := range slices.Compact(groups) {
			perThread[group] = append(perThread[group], scaled(x.socket, float64(r.Sockets)/float64(r.Threads)))
		}
		if x.tdp == 0 {
			continue
		}
		known = append(known, x)
		of := float64(r.Threads) / float64(r.Sockets) / 2
		ratios[x.generation] = append(ratios[x.generation], of/x.tdp)
		cores[x.model] = append(cores[x.model], of)
	}
	for generation, all := range perThread {
		m.threads[generation] = medians(all)
	}
	for generation, all := range ratios {
		m.ratios[generation] = median(all)
	}
	for model, all := range cores {
		m.cores[model] = median(all)
	}
	for i := range m.base {
		m.base[i] = regress(known, i, at)
	}
	byGeneration, byModel := map[string][]power{}, map[string][]power{}
	for _, x := range known {
		byGeneration[x.generation] = append(byGeneration[x.generation], m.rest(x))
	}
	delete(byGeneration, "")
	m.generations = m.shrunk(byGeneration)
	for _, x := range known {
		byModel[x.model] = append(byModel[x.model], m.rest(x))
	}
	m.models = m.shrunk(byModel)
	return m
}

// rest is what the model so far leaves of a result.
func (m *model) rest(x row) (rest power) {
	for i, w := range m.socket(x.model, x.generation, x.tdp) {
		rest[i] = math.Log(x.socket[i] / w)
	}
	return rest
}

func (m *model) shrunk(all map[string][]power) map[string]power {
	of := map[string]power{}
	for key, rests := range all {
		n := float64(len(rests))
		of[key] = scaled(medians(rests), n/(n+1))
		m.counts[key] = len(rests)
	}
	return of
}

// socket returns the watts of a socket.
func (m *model) socket(spelling, generation string, tdp float64) (watts power) {
	for i, b := range m.base {
		sum := m.generations[generation][i] + m.models[spelling][i]
		for k, x := range features(spelling, tdp) {
			sum += b[k] * x
		}
		watts[i] = math.Exp(sum)
	}
	watts[0] = min(watts[0], watts[1])
	return watts
}

// regress solves the normal equations of weighted least squares.
func regress(known []row, of int, at time.Time) (b [3]float64) {
	var a [3][4]float64
	for _, x := range known {
		if x.Published.Year() < earliest {
			continue
		}
		weight := math.Exp(-at.Sub(x.Published).Hours() / 24 / 365 / forgets)
		f := features(x.model, x.tdp)
		for i := range f {
			for k := range f {
				a[i][k] += weight * f[i] * f[k]
			}
			a[i][3] += weight * f[i] * math.Log(x.socket[of])
		}
	}
	for i := range a { // Gauss and Jordan; the matrix is positive definite
		for k := range a {
			if factor := a[k][i] / a[i][i]; k != i {
				for j := range a[k] {
					a[k][j] -= factor * a[i][j]
				}
			}
		}
	}
	for i := range a {
		b[i] = a[i][3] / a[i][i]
	}
	return b
}

func scaled(p power, by float64) power { return power{p[0] * by, p[1] * by} }

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func medians(all []power) (p power) {
	for i := range p {
		var of []float64
		for _, one := range all {
			of = append(of, one[i])
		}
		p[i] = median(of)
	}
	return p
}

// thread returns the watts of a thread of a generation, and what they rest on.
func (m *model) thread(a architecture) (watts power, basis, source string) {
	if watts, ok := m.threads[a.name]; ok {
		if strings.HasPrefix(a.name, "generic ") {
			return watts, "family", "median of SPECpower_ssj2008 results"
		}
		return watts, "threads", "median of SPECpower_ssj2008 results"
	}
	if a.largest != "" {
		spelling := hardware.Spell(a.largest)
		tdp := m.tdps[spelling].watts
		return scaled(m.socket(spelling, a.name, tdp), 1/(2*a.cores)), "threads",
			fmt.Sprintf("%s by a TDP of %v W", a.largest, tdp)
	}
	return m.threads[a.like], "stand-in", "those of " + a.like
}

// coresOf returns the cores of a socket: as results have them, else by the TDP. 0: a PC, which has one socket.
func (m *model) coresOf(spelling, generation string, tdp float64) float64 {
	if known := m.cores[spelling]; known > 0 {
		return known
	}
	if ratio := m.ratios[generation]; ratio > 0 && generation != "" {
		return ratio * tdp
	}
	for _, a := range architectures {
		if a.name == generation && a.largest != "" {
			return a.cores / m.tdps[hardware.Spell(a.largest)].watts * tdp
		}
	}
	return 0
}

// tables returns the files of the catalogue.
func (m *model) tables(measured, machines [][]string) fstest.MapFS {
	var threads, cpus [][]string
	for _, a := range architectures {
		watts, basis, source := m.thread(a)
		threads = append(threads, []string{a.name, a.names, number(watts[0], 4), number(watts[1], 4), basis, source})
	}
	for spelling, t := range m.tdps {
		generation := generationOf(spelling).name
		watts, cores := m.socket(spelling, generation, t.watts), m.coresOf(spelling, generation, t.watts)
		basis, from := "tdp", number(t.watts, 1)
		if m.counts[spelling] > 0 {
			basis, from = "model", strconv.Itoa(m.counts[spelling])
		} else if m.counts[generation] > 0 {
			basis = "generation"
		}
		cpus = append(cpus, []string{
			t.name, strconv.FormatFloat(cores, 'f', 0, 64), number(watts[0], 1), number(watts[1], 1), basis, from,
		})
	}
	slices.SortFunc(cpus, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	yaml, err := os.ReadFile("hardware.yaml")
	if err != nil {
		log.Fatal(err)
	}
	return fstest.MapFS{
		"hardware.yaml":     {Data: yaml},
		"architectures.csv": table("architecture,names,idleWattsPerThread,maxWattsPerThread,basis,source", threads),
		"cpus.csv":          table("cpu,cores,idleWatts,maxWatts,basis,from", cpus),
		"instances.csv":     table("provider,type,vcpus,memoryGiB,architectures,gpu,gpus", machines),
		"errors.csv":        table("basis,sockets,results,idleErrorMedian,maxErrorMedian", measured),
	}
}

func table(head string, rows [][]string) *fstest.MapFile {
	b := bytes.NewBufferString(attribution + head + "\n")
	if err := csv.NewWriter(b).WriteAll(rows); err != nil {
		log.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

// score measures the catalogue of some tables on results that it was built without, and shows how far it is off.
func score(files fs.FS, results []hardware.Result) (rows [][]string) {
	c, err := hardware.FromTables(files)
	if err != nil {
		log.Fatal(err)
	}
	as := func(change func(*hardware.Result)) []hardware.Result {
		var all []hardware.Result
		for _, r := range results {
			if change(&r); r.CPU != "" {
				all = append(all, r)
			}
		}
		return all
	}
	for _, way := range []struct {
		sockets string
		results []hardware.Result
	}{ // each basis is taken from the first way that has it
		{"guessed", as(func(r *hardware.Result) { r.CPU, r.Sockets = generationOf(hardware.Spell(r.CPU)).name, 0 })},
		{"guessed", as(func(r *hardware.Result) { r.CPU, r.Sockets = familyOf(hardware.Spell(r.CPU)), 0 })},
		{"guessed", as(func(r *hardware.Result) { r.Sockets = 0 })},
		{"told", results},
	} {
		s := c.Score(way.results)
		for _, e := range s.Errors {
			log.Printf("%-35s sockets %-8s %4d results, %2d unknown: idle %.3f (90 %%: %.3f), full %.3f (%.3f)", e.Basis,
				way.sockets, e.Results, s.Unknown, e.IdleMedian, e.IdleP90, e.FullMedian, e.FullP90)
			seen := slices.ContainsFunc(rows, func(r []string) bool { return r[0] == e.Basis && r[1] == way.sockets })
			if e.Basis != "all" && e.Results >= enough && !seen {
				rows = append(rows, []string{
					e.Basis, way.sockets, strconv.Itoa(e.Results), number(e.IdleMedian, 3), number(e.FullMedian, 3),
				})
			}
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return rows
}
