package workload

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// The columns of a workload table, identified by name.
const (
	columnID           = "id"
	columnSubmit       = "submit_time"   // seconds since the start of the trace, or RFC 3339
	columnDuration     = "duration"      // seconds, or a Go duration
	columnCPU          = "cpu"           // cores, e.g. 1.5 or 500m
	columnMemory       = "memory"        // bytes, optionally with a suffix, e.g. Gi
	columnGPU          = "gpu"           // whole devices
	columnAllowedDelay = "allowed_delay" // format of duration; empty if not given
	columnDeadline     = "deadline"      // of completion, in the format of submit_time; empty for none
	columnTimeLimit    = "time_limit"    // time limit of the batch system, in the format of duration; empty for none
	columnOwner        = "owner"
	columnQueue        = "queue"
	columnSelector     = "selector" // labels required on the node, as key=value;key=value
	columnSites        = "sites"    // allowed sites, e.g. berlin;oslo, home site first; empty for all sites
	columnUse          = "cpu_use"  // fraction of its cores that the job uses, 0 to 1; empty for all
	columnMinReplicas  = "min_replicas"
	columnMaxReplicas  = "max_replicas"
	// Throughput is Amdahl's parallel fraction, or a list for min_replicas, min_replicas+1, …, e.g. 1;1.9;2.6.
	columnThroughput = "throughput"
)

// ours is our own format. The order of its rows is preserved.
var ours = format{
	name: "csv", id: columnID, ordered: true, add: (*Trace).csvJob,
	required: []string{columnID, columnSubmit, columnDuration, columnCPU},
	optional: []string{
		columnMemory, columnGPU, columnAllowedDelay, columnDeadline, columnTimeLimit, columnOwner, columnQueue,
		columnSelector, columnSites, columnUse, columnMinReplicas, columnMaxReplicas, columnThroughput,
	},
}

func (t *Trace) csvJob(row *rows, start time.Time) {
	instant := func(text string) (time.Time, error) { return moment(text, start) }
	job := sched.Job{
		ID: strings.Clone(row.text(columnID)), Submitted: parsed(row, columnSubmit, instant),
		Duration: parsed(row, columnDuration, positive(duration)), Request: request(row, cores),
		AllowedDelay: given(row, columnAllowedDelay, NoDelayGiven, duration),
		FinishBy:     given(row, columnDeadline, time.Time{}, instant),
		TimeLimit:    given(row, columnTimeLimit, 0, duration),
		Owner:        strings.Clone(row.text(columnOwner)), Queue: strings.Clone(row.text(columnQueue)),
	}
	if !job.FinishBy.IsZero() && !job.FinishBy.After(job.Submitted) {
		row.refuse(columnDeadline, fmt.Errorf("%q is not after the submission", row.text(columnDeadline)))
	}
	job.Selector, job.Sites = given(row, columnSelector, nil, selector), given(row, columnSites, nil, places)
	scaling(row, &job)
	_, relative := seconds(row.text(columnSubmit))
	t.Dated = relative != nil && (t.Dated || len(t.Jobs) == 0)
	t.Jobs = append(t.Jobs, job)
	if _, has := row.index[columnUse]; has {
		t.Use = append(t.Use, given(row, columnUse, 1, share))
	}
}

// doubts returns notes on numbers that are unlikely without a unit.
func (t *Trace) doubts() (notes []string) {
	var memory int64
	var delay time.Duration
	for i := range t.Jobs {
		memory, delay = max(memory, t.Jobs[i].Request.Memory), max(delay, t.Jobs[i].AllowedDelay)
	}
	if memory > 0 && memory < 1<<20 {
		notes = append(notes, fmt.Sprintf("all jobs request at most %d bytes of memory: is a unit such as Gi missing?",
			memory))
	}
	if delay > 0 && delay < time.Minute {
		notes = append(notes, fmt.Sprintf("all allowed delays are at most %v: is a unit such as h missing?", delay))
	}
	return notes
}

// selector parses the labels required on a node.
func selector(text string) (map[string]string, error) {
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

// places parses the names of sites.
func places(text string) ([]string, error) {
	sites := strings.Split(strings.Clone(text), ";")
	for i, site := range sites {
		if site == "" || slices.Contains(sites[:i], site) {
			return nil, fmt.Errorf("%q: want site;site, each once", text)
		}
	}
	return sites, nil
}

func share(text string) (float64, error) {
	v, err := number(text)
	if err != nil || v < 0 || v > 1 {
		return 0, fmt.Errorf("%q: want a fraction, 0 to 1", text)
	}
	return v, nil
}

// request parses the resources of a row. Memory and GPUs default to 0.
func request(row *rows, cores func(text string) (int64, error)) sched.Resources {
	return sched.Resources{
		MilliCPU: parsed(row, columnCPU, cores), Memory: given(row, columnMemory, 0, size),
		GPU: given(row, columnGPU, 0, whole),
	}
}

// moment parses seconds since start, or a time in RFC 3339.
func moment(text string, start time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), notBefore(start, t)
	}
	d, err := seconds(text)
	if err != nil && !isNumber(text) {
		err = fmt.Errorf("%q: want seconds since the start of the trace, or a time with its offset from UTC, "+
			"e.g. 2022-06-01T12:00:00+02:00", text)
	}
	return start.Add(d), err
}

func notBefore(start, t time.Time) error {
	if t.Before(start) {
		return fmt.Errorf("%s is before the start, %s (kubenergy workload convert makes times relative)",
			t.Format(time.RFC3339), start.Format(time.RFC3339))
	}
	return nil
}

// duration parses seconds or a Go duration; negative values are rejected.
func duration(text string) (time.Duration, error) {
	if isNumber(text) {
		return seconds(text)
	}
	return ParseDuration(text, "seconds, or a duration such as 90m")
}

var digit = regexp.MustCompile(`[0-9]`)

// ParseDuration parses a Go duration. It rejects negative durations and durations of more than a hundred years. Errors
// include want as the expected format.
func ParseDuration(text, want string) (time.Duration, error) {
	// time.ParseDuration does not distinguish overflows from syntax errors. With all digits replaced by zeros, only
	// syntax errors remain.
	_, wrong := time.ParseDuration(digit.ReplaceAllString(text, "0"))
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && isNumber(text) && strings.ContainsAny(text, "0123456789"): // excludes Inf and NaN
		return 0, fmt.Errorf("%q has no unit: want %s", text, want)
	case wrong != nil:
		return 0, fmt.Errorf("%q is not a duration: want %s", text, want)
	case d < 0 || err != nil && strings.HasPrefix(text, "-"):
		return 0, fmt.Errorf("%q is negative: want %s", text, want)
	case d > longest || err != nil:
		return 0, fmt.Errorf("%q is more than a hundred years: want %s", text, want)
	}
	return d, nil
}

// isNumber reports whether text is a number, including one that is rejected later.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

const (
	maxCores  = 1e6
	maxMemory = 1 << 60
	maxGPUs   = 1 << 20
)

// cores parses "1.5" or "1500m" into millicores, rounding up like Kubernetes.
func cores(text string) (int64, error) {
	digits, scale := text, 1000.0
	if milli, ok := strings.CutSuffix(text, "m"); ok {
		digits, scale = milli, 1
	}
	return quantity(text, digits, scale, maxCores*1000, "cores, e.g. 1.5 or 1500m", tooManyCores)
}

var tooManyCores = fmt.Sprintf("%.0f cores", maxCores)

// quantity parses digits, multiplies the number by factor and rounds up.
func quantity(text, digits string, factor, most float64, want, tooMuch string) (int64, error) {
	v, err := number(digits)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q: want %s", text, want)
	case v < 0:
		return 0, fmt.Errorf("%q is negative", text)
	case v*factor > most:
		return 0, fmt.Errorf("%q is more than %s", text, tooMuch)
	}
	return roundUp(v * factor), nil
}

// memorySuffixes contains the suffixes of Kubernetes quantities, longer ones first.
var memorySuffixes = [...]struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
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
	return quantity(text, digits, factor, maxMemory, "bytes, e.g. 4Gi or 512M", "any machine has")
}

var whole = wholeNumber("whole number", 0, maxGPUs)

// wholeNumber returns a parser for integers between least and most; what describes the number in errors.
func wholeNumber(what string, least, most int64) func(text string) (int64, error) {
	return func(text string) (int64, error) {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("%q: want a %s, %d to %d", text, what, least, most)
		}
		return v, nil
	}
}

// roundUp rounds up, tolerating floating-point errors: 0.29·1000 is not exactly 290 in binary.
func roundUp(v float64) int64 {
	if r := math.Round(v); math.Abs(v-r) <= 1e-9*math.Max(1, r) {
		return int64(r)
	}
	return int64(math.Ceil(v))
}

func selectorText(labels map[string]string) string {
	pair := func(key string) string { return key + "=" + labels[key] }
	return strings.Join(sliceutil.Map(slices.Sorted(maps.Keys(labels)), pair), ";")
}

// csvColumn is a column of the table written by WriteCSV.
type csvColumn struct {
	name   string
	always bool // otherwise it is written only if a job has a value
	text   func(i int) string
}

// WriteCSV writes t in the format read by [Load], with times in seconds since start.
func (t *Trace) WriteCSV(w io.Writer, start time.Time) error {
	// each returns the request of one replica, which is the request in the row of an elastic job.
	each := func(i int) sched.Resources { return t.Jobs[i].On(1).Request }
	table := make([][]string, len(t.Jobs)+1)
	for _, c := range []csvColumn{
		{columnID, true, func(i int) string { return t.Jobs[i].ID }},
		{columnSubmit, true, func(i int) string { return decimal(t.Jobs[i].Submitted.Sub(start).Seconds()) }},
		{columnDuration, true, func(i int) string { return decimal(t.Jobs[i].Duration.Seconds()) }},
		{columnCPU, true, func(i int) string { return strconv.FormatInt(each(i).MilliCPU, 10) + "m" }},
		{columnMemory, true, func(i int) string { return strconv.FormatInt(each(i).Memory, 10) }},
		{columnGPU, true, func(i int) string { return strconv.FormatInt(each(i).GPU, 10) }},
		{columnAllowedDelay, true, func(i int) string {
			return unless(t.Jobs[i].AllowedDelay == NoDelayGiven, t.Jobs[i].AllowedDelay.Seconds())
		}},
		{columnDeadline, true, func(i int) string {
			return unless(t.Jobs[i].FinishBy.IsZero(), t.Jobs[i].FinishBy.Sub(start).Seconds())
		}},
		{columnTimeLimit, false, func(i int) string {
			return unless(t.Jobs[i].TimeLimit == 0, t.Jobs[i].TimeLimit.Seconds())
		}},
		{columnOwner, false, func(i int) string { return t.Jobs[i].Owner }},
		{columnQueue, false, func(i int) string { return t.Jobs[i].Queue }},
		{columnSelector, false, func(i int) string { return selectorText(t.Jobs[i].Selector) }},
		{columnSites, false, func(i int) string { return strings.Join(t.Jobs[i].Sites, ";") }},
		{columnUse, false, func(i int) string {
			if t.Use == nil {
				return ""
			}
			return unless(t.Use[i] == 1, t.Use[i])
		}},
		t.elastic(columnMinReplicas, func(s *sched.Scaling) string { return strconv.Itoa(s.Least) }),
		t.elastic(columnMaxReplicas, func(s *sched.Scaling) string { return strconv.Itoa(s.Most()) }),
		t.elastic(columnThroughput, throughputText),
	} {
		texts, said := make([]string, len(t.Jobs)), c.always
		for i := range texts {
			texts[i] = c.text(i)
			said = said || texts[i] != ""
		}
		if !said {
			continue
		}
		table[0] = append(table[0], c.name)
		for i, text := range texts {
			table[i+1] = append(table[i+1], text)
		}
	}
	if err := csv.NewWriter(w).WriteAll(table); err != nil {
		return fmt.Errorf("writing workload: %w", err)
	}
	return nil
}

// decimal formats v with the minimum number of digits that preserves the value.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// unless formats v, or returns "" if the first argument is true.
func unless(nothing bool, v float64) string {
	if nothing {
		return ""
	}
	return decimal(v)
}

var notInLabel = regexp.MustCompile(`[^a-z0-9]`)

// LabelName replaces all characters that are not allowed in the name of an object or the value of a label.
func LabelName(text string) string {
	name := notInLabel.ReplaceAllString(strings.ToLower(text), "-")
	return strings.Trim(name[:min(len(name), 63)], "-")
}
