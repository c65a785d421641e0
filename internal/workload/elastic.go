package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// maxReplicas limits memory usage, because the throughput of each number of replicas is stored.
const maxReplicas = 10_000

var replicas = wholeNumber("number of replicas", 1, maxReplicas)

// scaling parses the numbers of replicas of a job. For an elastic job, the request of the row is that of one
// replica and the duration is that with the minimum number of replicas. The job requests the resources of the
// minimum number of replicas.
func scaling(row *rows, j *sched.Job) {
	high, text := row.text(columnMaxReplicas), row.text(columnThroughput)
	if row.text(columnMinReplicas) == "" && high == "" {
		if text != "" {
			row.refuse(columnThroughput, fmt.Errorf(
				"%q requires a job with several numbers of replicas: want %s", text, columnMaxReplicas))
		}
		return
	}
	least := int(given(row, columnMinReplicas, 1, replicas))
	most := int(parsed(row, columnMaxReplicas, replicas))
	if most < least {
		row.refuse(columnMaxReplicas, fmt.Errorf("%q is less than %s", high, columnMinReplicas))
	}
	j.Scaling = parsed(row, columnThroughput,
		func(text string) (*sched.Scaling, error) { return throughput(text, least, most) })
	one := j.Request
	for range least - 1 {
		j.Request = j.Request.Add(one)
	}
}

// throughput parses the throughput of replicas: an empty text for a linear increase, the parallel fraction of the
// work, or a list.
func throughput(text string, least, most int) (*sched.Scaling, error) {
	if text == "" {
		return sched.Amdahl(least, most, 1), nil
	}
	if !strings.Contains(text, ";") {
		parallel, err := number(text)
		if err != nil || parallel < 0 || parallel > 1 {
			return nil,
				fmt.Errorf("%q: want the fraction of the work that runs in parallel, 0 to 1, or "+
					"throughputs, e.g. 1;1.9;2.6", text)
		}
		return sched.Amdahl(least, most, parallel), nil
	}
	s := &sched.Scaling{Least: least}
	for part := range strings.SplitSeq(text, ";") {
		v, err := number(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		s.Throughput = append(s.Throughput, v)
	}
	if s.Most() != most {
		return nil, fmt.Errorf("%q has %d throughputs, but there are %d to %d replicas", text, len(s.Throughput),
			least, most)
	}
	return s, s.Validate()
}

// elastic returns a column with values for elastic jobs only.
func (t *Trace) elastic(name string, text func(*sched.Scaling) string) csvColumn {
	return csvColumn{name, false, func(i int) string {
		if t.Jobs[i].Scaling == nil {
			return ""
		}
		return text(t.Jobs[i].Scaling)
	}}
}

func throughputText(s *sched.Scaling) string {
	if len(s.Throughput) == 1 {
		return ""
	}
	format := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	return strings.Join(sliceutil.Map(s.Throughput, format), ";")
}
