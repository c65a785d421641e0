package workload_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

func readElastic(t *testing.T, rows string) ([]sched.Job, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path,
		[]byte("id,submit_time,duration,cpu,memory,min_replicas,max_replicas,throughput\n"+rows), 0o600); err != nil {
		t.Fatal(err)
	}
	return read(path, "", time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC))
}

func TestElasticJobsAreRead(t *testing.T) {
	jobs, err := readElastic(t, `list,0,1h,500m,1Gi,2,4,1;1.4;1.7
linear,0,1h,1,,,3,
amdahl,0,1h,1,,2,4,0.9
fixed,0,1h,1,,,,
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sched.Resources{MilliCPU: 1000, Memory: 2 << 30}, jobs[0].Request); diff != "" {
		t.Errorf("unexpected request of two replicas of half a core and 1 GiB (-want +got):\n%s", diff)
	}
	for i, want := range []*sched.Scaling{
		{Least: 2, Throughput: []float64{1, 1.4, 1.7}},
		{Least: 1, Throughput: []float64{1, 2, 3}},
		{Least: 2, Throughput: []float64{1, 0.55 / 0.4, 0.55 / 0.325}}, // 0.1 + 0.9/n of the time with one replica
		nil,
	} {
		if diff := cmp.Diff(want, jobs[i].Scaling,
			cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })); diff != "" {
			t.Errorf("unexpected scaling of %s (-want +got):\n%s", jobs[i].ID, diff)
		}
	}
	var b bytes.Buffer
	if err := (&workload.Trace{Jobs: jobs}).WriteCSV(&b, time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "again.csv")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := read(path, "", time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jobs, again); diff != "" {
		t.Errorf("jobs differ after writing and reading them (-before +after):\n%s", diff)
	}
}

func TestElasticJobsThatAreWrong(t *testing.T) {
	for row, want := range map[string][]string{
		"a,0,1h,1,,3,2,":        {"max_replicas", "less than"},
		"a,0,1h,1,,0,2,":        {"min_replicas", "1 to"},
		"a,0,1h,1,,1,,":         {"max_replicas", "number of replicas"},
		"a,0,1h,1,,,,0.9":       {"throughput", "want max_replicas"},
		"a,0,1h,1,,1,2,1.5":     {"throughput", "0 to 1"},
		"a,0,1h,1,,1,2,1;2;3":   {"throughput", "3 throughputs"},
		"a,0,1h,1,,1,3,1;1.2;2": {"throughput", "do not rise"},
		"a,0,1h,1,,1,2,1;x":     {"throughput", "not a finite number"},
	} {
		_, err := readElastic(t, row+"\n")
		if err == nil || slices.ContainsFunc(want,
			func(part string) bool { return !strings.Contains(err.Error(), part) }) {
			t.Errorf("%s: expected an error that contains %[3]v, got %[2]v", row, err, want)
		}
	}
}
