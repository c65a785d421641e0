package hardware

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Result is the measured power of one machine.
type Result struct {
	CPU       string       `json:"cpu"`
	Sockets   int64        `json:"sockets,omitempty"` // 0 if unknown
	Threads   int64        `json:"threads"`
	MemoryGB  float64      `json:"memoryGB"`
	Idle      energy.Watts `json:"idleWatts"`
	Full      energy.Watts `json:"fullWatts"`
	Published time.Time    `json:"published,omitzero"`
}

// resultColumns maps lower-case column names of SPECpower's list of results to our names.
var resultColumns = map[string]string{
	"cpu description": "cpu", "chips": "sockets", "# cores": "cores", "total threads": "threads",
	"total memory (gb)": "memorygb", "avg. watts @ active idle": "idlewatts", "avg. watts @ 100%": "fullwatts",
	"published": "date",
}

const minWatts = 0.01 // lower bound for any machine

// ReadResults reads measured machines from CSV with the columns cpu, cores or threads, memoryGB, idleWatts,
// fullWatts and optionally sockets and date. The columns may be in any order, and other columns are ignored. The
// column names of SPECpower are also accepted. Without threads, two threads per core are assumed. Rows without
// watts are skipped, because failed tests are published as well.
func ReadResults(text []byte) ([]Result, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	at := map[string]int{}
	for i, name := range head {
		name = strings.ToLower(strings.TrimSpace(name))
		at[cmp.Or(resultColumns[name], name)] = i
	}
	for _, needed := range []string{"cpu", "memorygb", "idlewatts", "fullwatts"} {
		if _, ok := at[needed]; !ok {
			return nil, fmt.Errorf("reading results: no column %s: want cpu, sockets, cores or threads, memoryGB, "+
				"idleWatts, fullWatts and date", needed)
		}
	}
	var all []Result
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading results: %w", err) // includes the line
		}
		one, err := readResult(at, row)
		if err != nil {
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("reading results: line %d: %w", line, err)
		}
		if min(one.Idle, one.Full) >= minWatts {
			all = append(all, one)
		}
	}
}

func readResult(at map[string]int, row []string) (r Result, err error) {
	field := func(name string) string {
		if i, ok := at[name]; ok {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	value := func(name string) float64 {
		text := strings.ReplaceAll(field(name), ",", "") // thousands separators
		v, wrong := strconv.ParseFloat(cmp.Or(text, "0"), 64)
		if wrong != nil || !(v >= 0 && v <= 1e9) {
			err = errors.Join(err, fmt.Errorf("%s is %s: want a number that is not negative", name, quoted(text)))
		}
		return v
	}
	r = Result{
		CPU: field("cpu"), Sockets: int64(value("sockets")), Threads: int64(value("threads")),
		MemoryGB: value("memorygb"), Idle: energy.Watts(value("idlewatts")), Full: energy.Watts(value("fullwatts")),
	}
	r.Threads = cmp.Or(r.Threads, 2*int64(value("cores")))
	if r.MemoryGB < float64(r.Threads)/10 {
		r.MemoryGB = float64(r.Threads) // "1,280" was truncated at its comma; assume a typical value
	}
	if text := field("date"); text != "" {
		for _, form := range []string{"Jan-2006", "2006-01", "2006-01-02"} {
			if r.Published, _ = time.Parse(form, text); !r.Published.IsZero() {
				return r, err
			}
		}
		err = errors.Join(err, fmt.Errorf("date is %s: want 2006-01-02 or 2006-01", quoted(text)))
	}
	return r, err
}

// Score contains the errors of profiles compared with results.
type Score struct {
	Results int      `json:"results"`
	Unknown int      `json:"unknown"` // number of results with an unknown CPU
	Errors  []Errors `json:"errors"`  // over all known results, followed by each basis
	Rows    []Scored `json:"rows"`    // sorted by error at full load, worst first, followed by unknown results
}

// Errors contains the errors of the profiles with one basis, relative to the measured values.
type Errors struct {
	Basis      string  `json:"basis"`
	Results    int     `json:"results"`
	IdleMedian float64 `json:"idleMedianRatio"`
	IdleP90    float64 `json:"idleP90Ratio,omitempty"`
	FullMedian float64 `json:"fullMedianRatio"`
	FullP90    float64 `json:"fullP90Ratio,omitempty"`
}

// String returns a description of the errors.
func (e *Errors) String() string {
	return fmt.Sprintf("profiles by %s: half of %d servers of the test set were within %.0f %% idle and "+
		"%.0f %% at full load", e.Basis, e.Results, 100*e.IdleMedian, 100*e.FullMedian)
}

// errorsOf returns the errors of profiles with the same basis, measured on servers that were not used to build the
// catalogue, or nil if they were not measured. None of these servers had GPUs.
func (c *Catalog) errorsOf(k Components) *Errors {
	if k.GPUs > 0 {
		return nil
	}
	return c.errors[c.CPUs[k.CPUModel].basis]
}

// Scored is a result with its profile. Errors are positive if the profile is too high.
type Scored struct {
	Result
	Basis       string       `json:"basis,omitempty"` // empty if unknown
	ProfileIdle energy.Watts `json:"profileIdleWatts,omitempty"`
	ProfileFull energy.Watts `json:"profileFullWatts,omitempty"`
	IdleError   float64      `json:"idleErrorRatio,omitempty"`
	FullError   float64      `json:"fullErrorRatio,omitempty"`
}

// Score compares the profiles of machines with their measured power. Machines are recognised by the name of their
// CPU, like nodes.
func (c *Catalog) Score(results []Result) Score {
	s := Score{Results: len(results)}
	for _, r := range results {
		row := Scored{Result: r}
		_, kind, known := c.Detect(map[string]string{labelCPUModel: r.CPU}, nil, "", r.Threads,
			int64(r.MemoryGB*gib), 0)
		k := kind.Components
		k.Sockets = r.Sockets
		if p, err := c.Profile(k); known && err == nil {
			row.Basis = cmp.Or(c.CPUs[k.CPUModel].basis, "file")
			row.ProfileIdle, row.ProfileFull = p.Idle, p.Max
			row.IdleError, row.FullError = float64(p.Idle/r.Idle)-1, float64(p.Max/r.Full)-1
		} else {
			s.Unknown++
		}
		s.Rows = append(s.Rows, row)
	}
	slices.SortStableFunc(s.Rows, func(a, b Scored) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(math.Abs(b.FullError), math.Abs(a.FullError)))
	})
	known := s.Rows[:len(s.Rows)-s.Unknown]
	s.Errors = []Errors{summary("all", known)}
	byBasis := map[string][]Scored{}
	for _, r := range known {
		byBasis[r.Basis] = append(byBasis[r.Basis], r)
	}
	for _, basis := range slices.Sorted(maps.Keys(byBasis)) {
		s.Errors = append(s.Errors, summary(basis, byBasis[basis]))
	}
	return s
}

func rank(r Scored) int { return min(len(r.Basis), 1) }

func summary(basis string, rows []Scored) Errors {
	e := Errors{Basis: basis, Results: len(rows)}
	if len(rows) == 0 {
		return e
	}
	sorted := func(fn func(Scored) float64) (median, p90 float64) {
		all := sliceutil.Map(rows, func(r Scored) float64 { return math.Abs(fn(r)) })
		slices.Sort(all)
		return all[len(all)/2], all[len(all)*9/10]
	}
	e.IdleMedian, e.IdleP90 = sorted(func(r Scored) float64 { return r.IdleError })
	e.FullMedian, e.FullP90 = sorted(func(r Scored) float64 { return r.FullError })
	return e
}
