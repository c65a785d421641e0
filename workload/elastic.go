package workload

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/sched"
)

// maxReplicas bounds memory: the throughput of each replica is kept.
const maxReplicas = 10_000

// scaling reads on how many replicas a job may run. What the row asks for is then what one of them does, and its
// duration that on the least number of them; the job asks for all of these.
func scaling(in *rows, j *sched.Job) (field string, err error) {
	low, high, text := in.text(columnMinReplicas), in.text(columnMaxReplicas), in.text(columnThroughput)
	if low == "" && high == "" {
		if text != "" {
			return columnThroughput, fmt.Errorf("%q is of a job that may run on several numbers of replicas: want %s",
				text, columnMaxReplicas)
		}
		return "", nil
	}
	least := 1
	if low != "" {
		if least, err = replicas(low); err != nil {
			return columnMinReplicas, err
		}
	}
	most, err := replicas(high)
	if err == nil && most < least {
		err = fmt.Errorf("%q is less than %s", high, columnMinReplicas)
	}
	if err != nil {
		return columnMaxReplicas, err
	}
	if j.Scaling, err = throughput(text, least, most); err != nil {
		return columnThroughput, err
	}
	one := j.Request
	for range least - 1 {
		j.Request = j.Request.Add(one)
	}
	return "", nil
}

func replicas(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxReplicas {
		return 0, fmt.Errorf("%q: want a number of replicas, 1 to %d", text, maxReplicas)
	}
	return n, nil
}

// throughput parses what more replicas give: nothing at all for all that they can, a fraction of the work that is
// shared among them, or a list.
func throughput(text string, least, most int) (*sched.Scaling, error) {
	if text == "" {
		return sched.Amdahl(least, most, 1), nil
	}
	if !strings.Contains(text, ";") {
		parallel, err := number(text)
		if err != nil || parallel < 0 || parallel > 1 {
			return nil,
				fmt.Errorf("%q: want the share of the work that replicas can do side by side, 0 to 1, or "+
					"throughputs, as 1;1.9;2.6", text)
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
		return nil, fmt.Errorf("%q are %d throughputs, for %d to %d replicas", text, len(s.Throughput), least, most)
	}
	return s, s.Validate()
}

func minReplicasText(j *sched.Job) string {
	if j.Scaling == nil {
		return ""
	}
	return strconv.Itoa(j.Scaling.Least)
}

func maxReplicasText(j *sched.Job) string {
	if j.Scaling == nil {
		return ""
	}
	return strconv.Itoa(j.Scaling.Most())
}

func throughputText(j *sched.Job) string {
	if j.Scaling == nil || len(j.Scaling.Throughput) == 1 {
		return ""
	}
	var parts []string
	for _, v := range j.Scaling.Throughput {
		parts = append(parts, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return strings.Join(parts, ";")
}
