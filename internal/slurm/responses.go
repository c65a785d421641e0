package slurm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// number is a count or a time. It is a plain number in old versions and an object with set, infinite and number in
// new ones. The special values of Slurm for "none" and "any" are decoded as zero.
type number int64

// noValue and the next number are the 32-bit values of "none" and "any". The 64-bit values and sums with them are
// larger.
const noValue = 1<<32 - 2

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	*n = 0
	if bytes.HasPrefix(text, []byte("{")) {
		var long struct {
			Set, Infinite bool
			Number        json.Number
		}
		if err := json.Unmarshal(text, &long); err != nil {
			return err
		}
		if text = []byte(long.Number); !long.Set || long.Infinite {
			return nil
		}
	}
	said := strings.Trim(string(text), `"`)
	if said == "null" || said == "" {
		return nil
	}
	f, err := strconv.ParseFloat(said, 64)
	if err == nil && f > 0 && f < noValue {
		*n = number(f)
	}
	return err
}

// time returns n as a time, or the zero time if n is 0.
func (n number) time() time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC()
}

// words is a list of strings, such as the states of a job. Old versions encode it as a single string.
type words []string

// UnmarshalJSON implements [json.Unmarshaler].
func (w *words) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		*w = words{""}
		return json.Unmarshal(text, &(*w)[0])
	}
	return json.Unmarshal(text, (*[]string)(w))
}

// has reports whether w contains any of the wanted strings, ignoring case.
func (w words) has(wanted ...string) bool {
	return slices.ContainsFunc(w, func(s string) bool {
		return slices.ContainsFunc(wanted, func(of string) bool { return strings.EqualFold(s, of) })
	})
}

// Job contains the fields of a Slurm job that are used. The pending tasks of an array are one Job.
type Job struct {
	ID           number `json:"job_id"`
	Name         string `json:"name"`
	Account      string `json:"account"`
	User         string `json:"user_name"`
	Partition    string `json:"partition"`
	Comment      string `json:"comment"`
	AdminComment string `json:"admin_comment"`
	State        words  `json:"job_state"`
	Reason       string `json:"state_reason"`
	Flags        words  `json:"flags"`
	Reservation  string `json:"resv_name"`
	HetJob       number `json:"het_job_id"`
	ArrayTasks   string `json:"array_task_string"`
	Submit       number `json:"submit_time"`
	Eligible     number `json:"eligible_time"` // BeginTime of a pending job
	End          number `json:"end_time"`
	Deadline     number `json:"deadline"`   // latest end
	TimeLimit    number `json:"time_limit"` // in minutes
	CPUs         number `json:"cpus"`
	Nodes        number `json:"node_count"`
	Tres         string `json:"tres_req_str"`
	Hosts        string `json:"nodes"` // allocated nodes
	Step         struct {
		SLUID string `json:"sluid"` // of the job; since Slurm 26.05 with v0.0.44 and later
	} `json:"step_id"`
}

// Node contains the fields of a Slurm node that are used.
type Node struct {
	Name        string   `json:"name"`
	CPUs        number   `json:"cpus"`
	AllocCPUs   number   `json:"alloc_cpus"`
	Memory      number   `json:"real_memory"` // in MiB, like AllocMemory
	AllocMemory number   `json:"alloc_memory"`
	Tres        string   `json:"tres"`
	TresUsed    string   `json:"tres_used"`
	Features    words    `json:"features"`
	State       words    `json:"state"`
	StateFlags  words    `json:"state_flags"` // only in old versions
	Partitions  []string `json:"partitions"`
}

// Usable reports whether a node accepts jobs, or would accept them after it was resumed.
func (n *Node) Usable() bool {
	bad := []string{"down", "drain", "fail", "error", "future", "unknown", "not_responding", "maintenance"}
	return !n.State.has(bad...) && !n.StateFlags.has(bad...)
}

// gpus is the name of GPUs in lists of resources if AccountingStorageTRES contains it.
const gpus = "gres/gpu"

// tres returns the amount of a resource in a list such as "cpu=4,mem=2G,gres/gpu=1", or 0 if it is missing.
func tres(list, name string) int64 {
	for entry := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != name || value == "" {
			continue
		}
		const units = "KMGTP"
		digits := strings.TrimRight(value, units)
		unit := int64(1)
		if letter := value[len(digits):]; letter != "" {
			unit <<= 10 * (strings.Index(units, letter) + 1)
		}
		if f, err := strconv.ParseFloat(digits, 64); err == nil && f >= 0 && f*float64(unit) < 1<<62 {
			return int64(f * float64(unit))
		}
	}
	return 0
}
