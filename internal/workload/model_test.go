package workload_test

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// kolmogorov returns the Kolmogorov–Smirnov statistic of two samples.
func kolmogorov(a, b []float64) float64 {
	slices.Sort(a)
	slices.Sort(b)
	largest, i, k := 0.0, 0, 0
	for i < len(a) && k < len(b) {
		v := min(a[i], b[k])
		for i < len(a) && a[i] <= v {
			i++
		}
		for k < len(b) && b[k] <= v {
			k++
		}
		largest = max(largest, math.Abs(float64(i)/float64(len(a))-float64(k)/float64(len(b))))
	}
	return largest
}

// likeness returns the properties used to compare traces.
func likeness(jobs []sched.Job) (runtimes, hours []float64, coreHours float64) {
	for i := range jobs {
		j := &jobs[i]
		runtimes = append(runtimes, j.Duration.Seconds())
		hours = append(hours, float64(int(j.Submitted.Weekday())*24+j.Submitted.Hour()))
		coreHours += j.Duration.Hours() * float64(j.Request.MilliCPU) / 1000
	}
	return runtimes, hours, coreHours
}

// A generated trace has the run times, the hours of arrival and the core-hours of the original trace.
func TestGeneratedTraceIsLikeItsModel(t *testing.T) {
	for _, c := range []struct {
		file            string
		hours, coreHour float64 // tolerances; bursts make the arrivals of a short trace random
	}{
		{"swf/hpc2n_first3171.swf.gz", 0.08, 0.25},
		{"swf/NASA-iPSC-1993-3.1-cln.swf.gz", 0.03, 0.1},
		{"gaia/pai_1k.csv.gz", 0.08, 0.2},
		{"surf_lisa_2022_week_tasks.csv.gz", 0.15, 0.15},
		{"alibaba_openb_2023/openb_pod_list_gpuspec33.csv.gz", 0.08, 0.35},
	} {
		if (strings.Contains(c.file, "NASA") || strings.Contains(c.file, "openb")) &&
			os.Getenv("KUBENERGY_LONG") == "" {
			continue // large files take seconds
		}
		jobs, err := read(shared(t, "workload/"+c.file), "", t0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := workload.Fit(jobs)
		if err != nil {
			t.Fatal(err)
		}
		made, err := m.Generate(1, len(jobs), t0)
		if err != nil {
			t.Fatal(err)
		}
		wantRun, wantHour, wantBusy := likeness(jobs)
		run, hour, busy := likeness(made)
		runs, hours, ratio := kolmogorov(wantRun, run), kolmogorov(wantHour, hour), busy/wantBusy
		t.Logf("%s: run times KS %.3f, arrivals KS %.3f, core-hours × %.3f; %d classes, %d owners with exponent %.2f",
			c.file, runs, hours, ratio, len(m.Classes), m.Owners, m.Zipf)
		if runs > 0.05 || hours > c.hours || math.Abs(ratio-1) > c.coreHour {
			t.Errorf("%s: run times KS %.3f, arrivals KS %.3f, core-hours × %.3f", c.file, runs, hours, ratio)
		}
	}
}

func TestModelIsDeterministicAndReadsBack(t *testing.T) {
	m, err := workload.Fit(workloadtest.Demo(1, t0))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back workload.Model
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	a, errA := m.Generate(7, 500, t0)
	b, errB := back.Generate(7, 500, t0)
	if errA != nil || errB != nil || len(a) != 500 || !reflect.DeepEqual(a, b) {
		t.Errorf("Generate() returned different lists of %d and %d jobs, errors %v and %v", len(a), len(b), errA, errB)
	}
	if other, _ := m.Generate(8, 500, t0); reflect.DeepEqual(a, other) {
		t.Error("Generate() returned the same jobs for another seed")
	}
	if !slices.IsSortedFunc(a, func(x, y sched.Job) int { return x.Submitted.Compare(y.Submitted) }) ||
		a[0].Submitted.Before(t0) {
		t.Error("jobs are not sorted by submission time or start too early")
	}
}

// The shares of owners follow the exponent, and hours without arrivals remain empty.
func TestModelFindsWhatIsThere(t *testing.T) {
	var jobs []sched.Job
	for day := range 28 {
		for k := range 60 { // jobs arrive between 10 and 12
			owner := "a"
			switch {
			case k%7 >= 6:
				owner = "c"
			case k%7 >= 4:
				owner = "b"
			}
			jobs = append(jobs, sched.Job{
				Submitted: t0.Add(time.Duration(day)*24*time.Hour + 10*time.Hour + time.Duration(k)*2*time.Minute),
				Duration:  time.Duration(1+k) * time.Minute, Owner: owner, AllowedDelay: time.Hour,
			})
		}
	}
	m, err := workload.Fit(jobs)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(m.Zipf-1.1) > 0.2 || m.Owners != 3 { // 4 : 2 : 1 is approximately 1 : 2^−1 : 3^−1.26
		t.Errorf("got %d owners with exponent %v, want 3 with about 1.1", m.Owners, m.Zipf)
	}
	made, err := m.Generate(1, 3000, t0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range made {
		if h := made[i].Submitted.Hour(); h < 10 || h >= 12 || made[i].AllowedDelay != time.Hour {
			t.Fatalf("unexpected job %+v in hour %d", made[i], h)
		}
	}
}

// Rare bursts contain most of the jobs. The size of the largest burst and the number of jobs per hour are
// preserved.
func TestModelKeepsBursts(t *testing.T) {
	var jobs []sched.Job
	hours := 0
	for ; len(jobs) < 40_000; hours++ { // 40 single jobs an hour, and a burst of 2,000 every 100
		at := t0.Add(time.Duration(hours) * time.Hour)
		for k := range 40 {
			jobs = append(jobs, sched.Job{Submitted: at.Add(time.Duration(k) * time.Minute), Duration: time.Minute})
		}
		for range 2000 {
			if hours%100 == 99 {
				jobs = append(jobs, sched.Job{Submitted: at.Add(50 * time.Minute), Duration: time.Minute})
			}
		}
	}
	m, err := workload.Fit(jobs)
	if err != nil {
		t.Fatal(err)
	}
	made, err := m.Generate(2, 400_000, t0)
	if err != nil {
		t.Fatal(err)
	}
	largest, size := 0, 0
	for i := range made {
		if size++; i > 0 && !made[i].Submitted.Equal(made[i-1].Submitted) {
			size = 1
		}
		largest = max(largest, size)
	}
	if largest != 2000 {
		t.Errorf("size of the largest batch = %d, want 2000", largest)
	}
	want, got := float64(len(jobs))/float64(hours), float64(len(made))/made[len(made)-1].Submitted.Sub(t0).Hours()
	if math.Abs(got/want-1) > 0.25 { // about a hundred random bursts
		t.Errorf("got %.1f jobs per hour, want %.1f", got, want)
	}
}

func TestModelRefuses(t *testing.T) {
	if _, err := workload.Fit(make([]sched.Job, 5)); err == nil || !strings.Contains(err.Error(), "two submission times") {
		t.Errorf("unexpected error for five simultaneous jobs: %v", err)
	}
	for text, want := range map[string]string{
		`{}`:            "want at least one rate above 0",
		`{"colour": 1}`: `unknown field "colour"`,
		`{"batchesPerHour":[1],"batches":[{"size":0,"count":1}],"classes":[]}`:                                          "batches: want sizes and counts from 1",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":0}],"classes":[]}`:                                          "batches: want sizes and counts from 1",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":1}],"classes":[{"jobs":0}]}`:                                "classes[0]: jobs is 0",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":1}],"classes":[{"jobs":1,"seconds":[2,1]}]}`:                "classes[0]: seconds",
		`{"batchesPerHour":[-1],"batches":[{"size":1,"count":1}],"classes":[{"jobs":1,"seconds":[1]}]}`:                 "batchesPerHour[0] is -1",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":1}],"owners":-1,"classes":[{"jobs":1,"seconds":[1]}]}`:      "owners are -1",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":1}],"classes":[{"jobs":1,"milliCPU":-1,"seconds":[1]}]}`:    "request is out of range",
		`{"batchesPerHour":[1],"batches":[{"size":1,"count":1}],"classes":[{"jobs":1,"seconds":[1],"queue":"a"}]}    x`: "invalid character",
	} {
		var m workload.Model
		if err := json.Unmarshal([]byte(text), &m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", text, err, want)
		}
	}
}

// FuzzModel decodes a model and generates a trace from it.
func FuzzModel(f *testing.F) {
	f.Add([]byte(`{"classes":[{"jobs":3,"milliCPU":500,"memory":1000,"seconds":[1,2.5,60]}]}`))
	m, err := workload.Fit(workloadtest.Demo(1, t0))
	if err != nil {
		f.Fatal(err)
	}
	m.Classes = m.Classes[:1]
	text, err := json.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		m := &workload.Model{}
		if json.Unmarshal(text, m) != nil {
			return
		}
		jobs, err := m.Generate(1, 20, t0)
		last := t0
		for _, j := range jobs {
			least := min(j.Request.MilliCPU, j.Request.Memory, j.Request.GPU)
			if err != nil || j.Submitted.Before(last) || j.Duration <= 0 || least < 0 {
				t.Fatalf("%+v: %v", j, err)
			}
			last = j.Submitted
		}
	})
}
