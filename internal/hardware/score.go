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
)

// Result is what one machine drew when it was measured.
type Result struct {
	CPU       string       `json:"cpu"`
	Sockets   int64        `json:"sockets,omitempty"` // 0: not known
	Threads   int64        `json:"threads"`
	MemoryGB  float64      `json:"memoryGB"`
	Idle      energy.Watts `json:"idleWatts"`
	Full      energy.Watts `json:"fullWatts"`
	Published time.Time    `json:"published,omitzero"`
}

// resultColumns maps the names of columns to ours: those of SPECpower's list of results, in lower case.
var resultColumns = map[string]string{
	"cpu description": "cpu", "chips": "sockets", "# cores": "cores", "total threads": "threads",
	"total memory (gb)": "memorygb", "avg. watts @ active idle": "idlewatts", "avg. watts @ 100%": "fullwatts",
	"published": "date",
}

const minWatts = 0.01 // no machine draws less

// ReadResults reads measured machines from CSV with the columns cpu, cores or threads, memoryGB, idleWatts, fullWatts
// and, where they are known, sockets and date, in any order and among others. SPECpower's own columns serve too.
// Without threads, each core has two. Rows without watts are left out: tests that failed are published as well.
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
			return nil, fmt.Errorf("reading results: %w", err) // it names the line
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
		text := strings.ReplaceAll(field(name), ",", "") // of thousands
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
		r.MemoryGB = float64(r.Threads) // "1,280" was cut at its comma: what such servers have in the middle
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

// Score is how far profiles are from results.
type Score struct {
	Results int      `json:"results"`
	Unknown int      `json:"unknown"` // results whose CPU is not recognised
	Errors  []Errors `json:"errors"`  // of all that are known, and then of each kind
	Rows    []Scored `json:"rows"`    // the worst at full load first, then those that are not known
}

// Errors are those of the profiles of one kind, as shares of what was measured.
type Errors struct {
	Basis      string  `json:"basis"`
	Results    int     `json:"results"`
	IdleMedian float64 `json:"idleMedianRatio"`
	IdleP90    float64 `json:"idleP90Ratio,omitempty"`
	FullMedian float64 `json:"fullMedianRatio"`
	FullP90    float64 `json:"fullP90Ratio,omitempty"`
}

// String says how far off such profiles were.
func (e *Errors) String() string {
	return fmt.Sprintf("profiles by %s: half of %d servers that they were not made from were within %.0f %% idle and "+
		"%.0f %% at full load", e.Basis, e.Results, 100*e.IdleMedian, 100*e.FullMedian)
}

// errorsOf returns how far profiles of the kind of some hardware were off, on servers that the catalogue was built
// without; nil: it was not measured. None of those had GPUs.
func (c *Catalog) errorsOf(k Components) *Errors {
	if k.GPUs > 0 {
		return nil
	}
	return c.errors[c.CPUs[k.CPUModel].basis]
}

// Scored is a result beside its profile. Errors have a sign: above 0 the profile has too much.
type Scored struct {
	Result
	Basis       string       `json:"basis,omitempty"` // "": not known
	ProfileIdle energy.Watts `json:"profileIdleWatts,omitempty"`
	ProfileFull energy.Watts `json:"profileFullWatts,omitempty"`
	IdleError   float64      `json:"idleErrorRatio,omitempty"`
	FullError   float64      `json:"fullErrorRatio,omitempty"`
}

// Score compares the profiles of machines, recognised by the name of their CPU as nodes are, with what they drew.
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
		var all []float64
		for _, r := range rows {
			all = append(all, math.Abs(fn(r)))
		}
		slices.Sort(all)
		return all[len(all)/2], all[len(all)*9/10]
	}
	e.IdleMedian, e.IdleP90 = sorted(func(r Scored) float64 { return r.IdleError })
	e.FullMedian, e.FullP90 = sorted(func(r Scored) float64 { return r.FullError })
	return e
}
