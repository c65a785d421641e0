package workload

import (
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

	"github.com/kubenergy/kubenergy/sched"
)

// The columns of a workload table, found by name.
const (
	columnID           = "id"
	columnSubmit       = "submit_time"   // seconds since the start of the trace, or RFC 3339
	columnDuration     = "duration"      // seconds, or a Go duration
	columnCPU          = "cpu"           // cores, or as 500m
	columnMemory       = "memory"        // bytes, or with a suffix as Gi
	columnGPU          = "gpu"           // whole devices
	columnAllowedDelay = "allowed_delay" // as duration; empty: not given
	columnDeadline     = "deadline"      // of the finish, as submit_time; empty: none
	columnOwner        = "owner"
	columnQueue        = "queue"
	columnSelector     = "selector" // labels that a node must carry, as key=value;key=value
	columnUse          = "cpu_use"  // share of its cores that it keeps busy, 0 to 1; empty: all of them
	columnMinReplicas  = "min_replicas"
	columnMaxReplicas  = "max_replicas"
	// Amdahl's parallel fraction, or of min_replicas, one more, and so on, as 1;1.9;2.6
	columnThroughput = "throughput"
)

var (
	requiredColumns = []string{columnID, columnSubmit, columnDuration, columnCPU}
	optionalColumns = []string{
		columnMemory, columnGPU, columnAllowedDelay, columnDeadline, columnOwner, columnQueue, columnSelector,
		columnUse,
		columnMinReplicas, columnMaxReplicas, columnThroughput,
	}
)

func (t *Trace) readCSV(file string, text []byte, start time.Time) error {
	in, err := newRows(file, text, requiredColumns, optionalColumns)
	if err != nil {
		return err
	}
	_, hasUse := in.index[columnUse]
	seen := ids{}
	for {
		err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		job, field, err := csvJob(in, start)
		if err == nil {
			field, err = columnID, seen.add(job.ID)
		}
		if err == nil && hasUse {
			var use float64
			field = columnUse
			use, err = share(in.text(columnUse))
			t.Use = append(t.Use, use)
		}
		if err != nil {
			return in.wrap(field, err)
		}
		t.Jobs = append(t.Jobs, job)
	}
}

// csvJob parses the present row. With an error it names the field that is wrong.
func csvJob(in *rows, start time.Time) (job sched.Job, field string, err error) {
	job = sched.Job{ID: strings.Clone(in.text(columnID)), AllowedDelay: NoDelayGiven}
	if job.Submitted, err = moment(in.text(columnSubmit), start); err != nil {
		return job, columnSubmit, err
	}
	if job.Duration, err = positive(in.text(columnDuration), duration); err != nil {
		return job, columnDuration, err
	}
	if job.Request, field, err = request(in); err != nil {
		return job, field, err
	}
	if text := in.text(columnAllowedDelay); text != "" {
		if job.AllowedDelay, err = duration(text); err != nil {
			return job, columnAllowedDelay, err
		}
	}
	if text := in.text(columnDeadline); text != "" {
		if job.FinishBy, err = moment(text, start); err != nil {
			return job, columnDeadline, err
		}
		if !job.FinishBy.After(job.Submitted) {
			return job, columnDeadline, fmt.Errorf("%q is not after the submission", text)
		}
	}
	job.Owner, job.Queue = strings.Clone(in.text(columnOwner)), strings.Clone(in.text(columnQueue))
	if job.Selector, err = selector(in.text(columnSelector)); err != nil {
		return job, columnSelector, err
	}
	field, err = scaling(in, &job)
	return job, field, err
}

// selector parses labels that a node must carry.
func selector(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(strings.Clone(text), ";") {
		key, value, ok := strings.Cut(pair, "=")
		_, twice := labels[key]
		if !ok || key == "" || twice {
			return nil, fmt.Errorf("%q: want key=value;key=value, each key once", text)
		}
		labels[key] = value
	}
	return labels, nil
}

// share parses a share. An empty text is 1.
func share(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	v, err := number(text)
	if err != nil || v < 0 || v > 1 {
		return 0, fmt.Errorf("%q: want a share, 0 to 1", text)
	}
	return v, nil
}

// request parses the resources of a row. Absent memory and GPUs are none.
func request(in *rows) (r sched.Resources, field string, err error) {
	if r.MilliCPU, err = cores(in.text(columnCPU)); err != nil {
		return r, columnCPU, err
	}
	if text := in.text(columnMemory); text != "" {
		if r.Memory, err = size(text); err != nil {
			return r, columnMemory, err
		}
	}
	if text := in.text(columnGPU); text != "" {
		if r.GPU, err = whole(text); err != nil {
			return r, columnGPU, err
		}
	}
	return r, "", nil
}

// moment parses seconds since start, or RFC 3339.
func moment(text string, start time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		if t.Before(start) {
			return t, fmt.Errorf("%s is before the start, %s", text, start.Format(time.RFC3339))
		}
		return t.UTC(), nil
	}
	d, err := seconds(text)
	if err != nil {
		if !isNumber(text) {
			err = fmt.Errorf("%q: want seconds since the start of the trace, or 2022-06-01T12:00:00Z", text)
		}
		return time.Time{}, err
	}
	return start.Add(d), nil
}

// duration parses seconds or a Go duration; neither may be negative.
func duration(text string) (time.Duration, error) {
	if isNumber(text) {
		return seconds(text)
	}
	return ParseDuration(text, "seconds, or a duration such as 90m")
}

// ParseDuration parses a duration as Go writes it: not negative, and at most a hundred years. Errors say that want is
// wanted.
func ParseDuration(text, want string) (time.Duration, error) {
	// Go does not tell what is too long from what is no duration; with zeros for digits nothing is too long.
	_, wrong := time.ParseDuration(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, text))
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && isNumber(text) && strings.ContainsAny(text, "0123456789"): // neither Inf nor NaN
		return 0, fmt.Errorf("%q has no unit: want %s", text, want)
	case wrong != nil:
		return 0, fmt.Errorf("%q is no duration: want %s", text, want)
	case d < 0 || err != nil && strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("%q is negative: want %s", text, want)
	case d > longest || err != nil:
		return 0, fmt.Errorf("%q is more than a hundred years: want %s", text, want)
	}
	return d, nil
}

// isNumber reports whether text is meant as a number, even one that is refused later.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

const (
	maxCores  = 1e6
	maxMemory = 1 << 60
	maxGPUs   = 1 << 20
)

// cores parses "1.5" or "1500m" into thousandths of a core, rounding up as Kubernetes does.
func cores(text string) (int64, error) {
	digits, scale := text, 1000.0
	if milli, ok := strings.CutSuffix(text, "m"); ok {
		digits, scale = milli, 1
	}
	v, err := number(digits)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q: want cores, as 1.5 or 1500m", text)
	case v < 0:
		return 0, fmt.Errorf("%q is negative", text)
	case v*scale > maxCores*1000:
		return 0, fmt.Errorf("%q is more than %.0f cores", text, maxCores)
	}
	return roundUp(v * scale), nil
}

// memorySuffixes are those of Kubernetes quantities; longer ones first.
var memorySuffixes = [...]struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"Ti", 1 << 40},
	{"k", 1e3},
	{"K", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
}

// size parses a number of bytes.
func size(text string) (int64, error) {
	digits, factor := text, 1.0
	for _, s := range memorySuffixes {
		if cut, ok := strings.CutSuffix(text, s.suffix); ok {
			digits, factor = cut, s.factor
			break
		}
	}
	v, err := number(digits)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q: want bytes, as 4Gi or 512M", text)
	case v < 0:
		return 0, fmt.Errorf("%q is negative", text)
	case v*factor > maxMemory:
		return 0, fmt.Errorf("%q is more than any machine has", text)
	}
	return roundUp(v * factor), nil
}

func whole(text string) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > maxGPUs {
		return 0, fmt.Errorf("%q: want a whole number, 0 to %d", text, maxGPUs)
	}
	return v, nil
}

// roundUp forgives the last digits: 0.29·1000 is not 290 in binary, but is meant as 290.
func roundUp(v float64) int64 {
	if r := math.Round(v); math.Abs(v-r) <= 1e-9*math.Max(1, r) {
		return int64(r)
	}
	return int64(math.Ceil(v))
}

// csvColumn is a column that is written only where a job has something to say in it.
type csvColumn struct {
	name string
	text func(t *Trace, i int) string
}

var csvColumns = []csvColumn{
	{columnOwner, func(t *Trace, i int) string { return t.Jobs[i].Owner }},
	{columnQueue, func(t *Trace, i int) string { return t.Jobs[i].Queue }},
	{columnSelector, func(t *Trace, i int) string { return selectorText(t.Jobs[i].Selector) }},
	{columnUse, func(t *Trace, i int) string {
		if t.Use == nil || t.Use[i] == 1 {
			return ""
		}
		return strconv.FormatFloat(t.Use[i], 'f', -1, 64)
	}},
	{columnMinReplicas, func(t *Trace, i int) string { return minReplicasText(&t.Jobs[i]) }},
	{columnMaxReplicas, func(t *Trace, i int) string { return maxReplicasText(&t.Jobs[i]) }},
	{columnThroughput, func(t *Trace, i int) string { return throughputText(&t.Jobs[i]) }},
}

func selectorText(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ";")
}

// WriteCSV writes t as [Load] reads it: times in seconds since start.
func (t *Trace) WriteCSV(w io.Writer, start time.Time) error {
	out := csv.NewWriter(w)
	header := []string{
		columnID, columnSubmit, columnDuration, columnCPU, columnMemory, columnGPU, columnAllowedDelay, columnDeadline,
	}
	var more []csvColumn
	for _, c := range csvColumns {
		for i := range t.Jobs {
			if c.text(t, i) != "" {
				more = append(more, c)
				header = append(header, c.name)
				break
			}
		}
	}
	table := [][]string{header}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		delay, deadline := "", ""
		if j.AllowedDelay != NoDelayGiven {
			delay = decimal(j.AllowedDelay)
		}
		if !j.FinishBy.IsZero() {
			deadline = decimal(j.FinishBy.Sub(start))
		}
		each := j.On(1) // of an elastic job a row says what one replica asks for
		row := []string{
			j.ID, decimal(j.Submitted.Sub(start)), decimal(j.Duration),
			strconv.FormatInt(each.Request.MilliCPU, 10) + "m", strconv.FormatInt(each.Request.Memory, 10),
			strconv.FormatInt(each.Request.GPU, 10), delay, deadline,
		}
		for _, c := range more {
			row = append(row, c.text(t, i))
		}
		table = append(table, row)
	}
	if err := out.WriteAll(table); err != nil {
		return fmt.Errorf("writing workload: %w", err)
	}
	return nil
}

// decimal renders d in seconds with as many digits as it needs.
func decimal(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
