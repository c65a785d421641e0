package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const hoursOfWeek = 7 * 24

// Model is a statistical model of a trace, from which similar traces can be generated: the arrival rate by hour of
// the week, the sizes of batches, the requests, the run times by request, and the owners. Owners are drawn
// independently of requests, and run times independently of each other. Other correlations between the jobs of an
// owner or of a batch are not modelled.
type Model struct {
	// Rate is the number of batches per hour, by hour of the week in UTC, starting on Monday.
	Rate [hoursOfWeek]float64 `json:"batchesPerHour"`
	// Batches contains the numbers of jobs submitted at the same time, in ascending order.
	Batches []ModelBatch `json:"batches"`
	// Classes contains the kinds of requests.
	Classes []ModelClass `json:"classes"`
	// Owners is the number of owners. The fraction of jobs of the owner of rank r is proportional to r^−Zipf.
	Owners int     `json:"owners,omitempty"`
	Zipf   float64 `json:"zipf,omitempty"`
}

// ModelBatch is a batch size. Sizes are counted rather than sampled, because bursts of thousands of jobs are rare
// but contain most of the jobs.
type ModelBatch struct {
	Size  int `json:"size"`
	Count int `json:"count"` // number of batches of this size in the original trace; used as weight
}

// ModelClass is one kind of request.
type ModelClass struct {
	Jobs         int               `json:"jobs"` // number of jobs in the original trace; used as weight
	MilliCPU     int64             `json:"milliCPU"`
	Memory       int64             `json:"memoryBytes,omitempty"` // median
	GPU          int64             `json:"gpu,omitempty"`
	Queue        string            `json:"queue,omitempty"`
	Selector     map[string]string `json:"selector,omitempty"`
	AllowedDelay *float64          `json:"allowedDelaySeconds,omitempty"` // absent if not given
	// Seconds contains mean run times of groups of equally many jobs, in ascending order.
	Seconds []float64 `json:"seconds"`
}

// modelRunTimes limits the number of run times per class to keep models small. For the same reason, requests are
// grouped by the power of two of their memory.
const modelRunTimes = 256

// Fit returns a model of jobs, which must be sorted by submission time.
func Fit(jobs []sched.Job) (*Model, error) {
	if len(jobs) < 2 || !jobs[len(jobs)-1].Submitted.After(jobs[0].Submitted) {
		return nil, errors.New("fitting a workload: want jobs with at least two submission times")
	}
	m := &Model{}
	m.fitArrivals(jobs)
	m.fitClasses(jobs)
	m.fitOwners(jobs)
	return m, nil
}

func hourOfWeek(t time.Time) int {
	t = t.UTC()
	return (int(t.Weekday())+6)%7*24 + t.Hour()
}

func (m *Model) fitArrivals(jobs []sched.Job) {
	var batches [hoursOfWeek]float64
	var sizes []int
	for i := range jobs {
		if i > 0 && jobs[i].Submitted.Equal(jobs[i-1].Submitted) {
			sizes[len(sizes)-1]++
			continue
		}
		sizes = append(sizes, 1)
		batches[hourOfWeek(jobs[i].Submitted)]++
	}
	// The time that the trace covers in each hour of the week. The first and the last hour may be partial.
	var hours [hoursOfWeek]float64
	begin, end := jobs[0].Submitted, jobs[len(jobs)-1].Submitted
	for t := begin; t.Before(end); {
		next := timeutil.Earlier(t.Truncate(time.Hour).Add(time.Hour), end)
		hours[hourOfWeek(t)] += next.Sub(t).Hours()
		t = next
	}
	mean := float64(len(sizes)) / end.Sub(begin).Hours()
	for h := range m.Rate {
		if m.Rate[h] = mean; hours[h] > 0.5 { // use the mean if less than half an hour was observed
			m.Rate[h] = batches[h] / hours[h]
		}
	}
	count := map[int]int{}
	for _, size := range sizes {
		count[size]++
	}
	for _, size := range slices.Sorted(maps.Keys(count)) {
		m.Batches = append(m.Batches, ModelBatch{size, count[size]})
	}
}

// fitClasses groups jobs by their request.
func (m *Model) fitClasses(jobs []sched.Job) {
	type key struct {
		milliCPU, gpu   int64
		memory          int // power of two
		queue, selector string
		delay           time.Duration
	}
	members := map[key][]*sched.Job{}
	for i := range jobs {
		j := &jobs[i]
		k := key{
			j.Request.MilliCPU, j.Request.GPU, bits.Len64(uint64(max(0, j.Request.Memory))), j.Queue,
			selectorText(j.Selector), j.AllowedDelay,
		}
		members[k] = append(members[k], j)
	}
	keys := slices.SortedFunc(maps.Keys(members), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.milliCPU, b.milliCPU), cmp.Compare(a.gpu, b.gpu), cmp.Compare(a.memory, b.memory),
			strings.Compare(a.queue, b.queue), strings.Compare(a.selector, b.selector), cmp.Compare(a.delay, b.delay))
	})
	for _, k := range keys {
		of := members[k]
		c := ModelClass{Jobs: len(of), MilliCPU: k.milliCPU, GPU: k.gpu, Queue: k.queue, Selector: of[0].Selector}
		if k.delay != NoDelayGiven {
			c.AllowedDelay = new(k.delay.Seconds())
		}
		slices.SortFunc(of, func(a, b *sched.Job) int { return cmp.Compare(a.Request.Memory, b.Request.Memory) })
		c.Memory = of[len(of)/2].Request.Memory
		slices.SortFunc(of, func(a, b *sched.Job) int { return cmp.Compare(a.Duration, b.Duration) })
		parts := min(len(of), modelRunTimes)
		for p := range parts {
			part := of[p*len(of)/parts : (p+1)*len(of)/parts]
			sum := 0.0
			for _, j := range part {
				sum += j.Duration.Seconds()
			}
			c.Seconds = append(c.Seconds, sum/float64(len(part)))
		}
		m.Classes = append(m.Classes, c)
	}
}

// fitOwners determines the exponent with the maximum likelihood for the numbers of jobs of the owners.
func (m *Model) fitOwners(jobs []sched.Job) {
	count := map[string]int{}
	for i := range jobs {
		if jobs[i].Owner != "" {
			count[jobs[i].Owner]++
		}
	}
	counts := slices.Sorted(maps.Values(count))
	slices.Reverse(counts)
	if m.Owners = len(counts); m.Owners < 2 {
		return
	}
	likelihood := func(s float64) (sum float64) {
		norm, total := 0.0, 0
		for r, n := range counts {
			norm += math.Pow(float64(r+1), -s)
			sum -= s * float64(n) * math.Log(float64(r+1))
			total += n
		}
		return sum - float64(total)*math.Log(norm)
	}
	low, high := 0.0, 5.0 // the likelihood has a single maximum
	for range 60 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if likelihood(a) < likelihood(b) {
			low = a
		} else {
			high = b
		}
	}
	m.Zipf = (low + high) / 2
}

// Generate returns n jobs that arrive from start on. The result is deterministic for a given model and seed.
func (m *Model) Generate(seed uint64, n int, start time.Time) ([]sched.Job, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	classes := newCumulative(len(m.Classes), func(i int) float64 { return float64(m.Classes[i].Jobs) })
	owners := newCumulative(m.Owners, func(r int) float64 { return math.Pow(float64(r+1), -m.Zipf) })
	batches := newCumulative(len(m.Batches), func(i int) float64 { return float64(m.Batches[i].Count) })
	jobs := make([]sched.Job, 0, n)
	for at := m.next(random, start); len(jobs) < n; at = m.next(random, at) {
		owner := ""
		if m.Owners > 0 {
			owner = fmt.Sprintf("owner-%d", owners.index(random)+1)
		}
		for range min(n-len(jobs), m.Batches[batches.index(random)].Size) {
			c := &m.Classes[classes.index(random)]
			j := sched.Job{
				ID: fmt.Sprintf("job-%06d", len(jobs)+1), Submitted: at, Duration: c.draw(random),
				Request: sched.Resources{MilliCPU: c.MilliCPU, Memory: c.Memory, GPU: c.GPU},
				Owner:   owner, Queue: c.Queue, Selector: c.Selector, AllowedDelay: NoDelayGiven,
			}
			if c.AllowedDelay != nil {
				j.AllowedDelay = fromSeconds(*c.AllowedDelay)
			}
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

func fromSeconds(s float64) time.Duration {
	return time.Duration(math.Round(s*1000)) * time.Millisecond
}

// next returns the arrival of the next batch after t. The rate changes every hour, and the remainder of the
// exponentially distributed gap is carried over.
func (m *Model) next(random *rand.Rand, t time.Time) time.Time {
	gap := random.ExpFloat64()
	for {
		rate, end := m.Rate[hourOfWeek(t)], t.Truncate(time.Hour).Add(time.Hour)
		if left := rate * end.Sub(t).Hours(); gap >= left {
			gap -= left
			t = end
			continue
		}
		return t.Add(time.Duration(gap / rate * float64(time.Hour))).Truncate(time.Millisecond)
	}
}

// draw returns a random run time. It interpolates between neighbouring values, so that the mean is that of the
// class.
func (c *ModelClass) draw(random *rand.Rand) time.Duration {
	last := float64(len(c.Seconds) - 1)
	at := min(last, max(0, random.Float64()*float64(len(c.Seconds))-0.5))
	i := min(int(at), max(0, len(c.Seconds)-2))
	s := c.Seconds[i]
	if i+1 < len(c.Seconds) {
		s += (at - float64(i)) * (c.Seconds[i+1] - s)
	}
	return max(time.Millisecond, fromSeconds(s))
}

// cumulative is a cumulative distribution for drawing an index by weight.
type cumulative []float64

func (c cumulative) index(random *rand.Rand) int {
	i, _ := slices.BinarySearch(c, random.Float64()*c[len(c)-1])
	return min(i, len(c)-1)
}

func newCumulative(n int, weight func(i int) float64) (c cumulative) {
	sum := 0.0
	for i := range n {
		sum += weight(i)
		c = append(c, sum)
	}
	return c
}

// The limits of a model. Owners take time to set up.
const (
	maxOwners = 1 << 20
	maxRate   = 1e9
	maxZipf   = 100
)

// Validate returns an error that lists every problem of m.
func (m *Model) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, values ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	sum := 0.0
	for h, rate := range m.Rate {
		bad(!(rate >= 0 && rate <= maxRate), "batchesPerHour[%d] is %v: want 0 to %v", h, rate, maxRate)
		sum += rate
	}
	bad(!(sum > 1e-6), "batchesPerHour: want at least one rate above 0")
	wrong := func(b ModelBatch) bool { return b.Size < 1 || b.Count < 1 }
	bad(len(m.Batches) == 0 || slices.ContainsFunc(m.Batches, wrong), "batches: want sizes and counts from 1")
	bad(m.Owners < 0 || m.Owners > maxOwners || !(math.Abs(m.Zipf) <= maxZipf),
		"owners are %d with exponent %v: want 0 to %d", m.Owners, m.Zipf, maxOwners)
	bad(len(m.Classes) == 0, "classes: want at least one")
	for i := range m.Classes {
		err := m.Classes[i].validate()
		bad(err != nil, "classes[%d]: %w", i, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("workload model: %w", errors.Join(errs...))
	}
	return nil
}

func (c *ModelClass) validate() error {
	switch {
	case c.Jobs < 1:
		return fmt.Errorf("jobs is %d: want 1 or more", c.Jobs)
	case c.MilliCPU < 0 || c.MilliCPU > maxCores*1000 || c.Memory < 0 || c.Memory > maxMemory || c.GPU < 0 ||
		c.GPU > maxGPUs:
		return errors.New("request is out of range")
	case c.AllowedDelay != nil && !(*c.AllowedDelay >= 0 && *c.AllowedDelay <= maxSeconds):
		return fmt.Errorf("allowedDelaySeconds is %v: want 0 or more", *c.AllowedDelay)
	case len(c.Seconds) == 0 || !slices.IsSorted(c.Seconds) ||
		!(c.Seconds[0] > 0 && c.Seconds[len(c.Seconds)-1] <= maxSeconds):
		return errors.New("seconds: want run times above 0 in ascending order")
	}
	return nil
}

// UnmarshalJSON decodes a model and rejects unknown fields.
func (m *Model) UnmarshalJSON(text []byte) error {
	type plain Model
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode((*plain)(m)); err != nil {
		return fmt.Errorf("decoding workload model: %w", err)
	}
	return m.Validate()
}
