package workload_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

var t0 = time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)

// write writes text to a file workload.csv and returns its path.
func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "workload.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pack(t testing.TB, text string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

// shared returns the path of a file in the directory of real data next to the repository.
func shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("../..", "..", "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipping because the directory of real data is missing: %v", err)
	}
	return path
}

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

func TestReadCSV(t *testing.T) {
	const text = "id,submit_time,duration,cpu,memory,gpu,allowed_delay,deadline\n" +
		"a,0,60,2,4Gi,1,0,\n" +
		"b,1.5,1h30m,500m,1000000000,,6h,2022-06-01T12:00:00Z\n" +
		"c,2022-06-01T02:00:00+02:00,0.25,0.5,512M,0,,86400\n"
	want := []sched.Job{
		{
			ID: "a", Submitted: at(0), Duration: time.Minute,
			Request: sched.Resources{MilliCPU: 2000, Memory: 4 << 30, GPU: 1},
		},
		{
			ID: "b", Submitted: at(1.5), Duration: 90 * time.Minute,
			Request:      sched.Resources{MilliCPU: 500, Memory: 1e9},
			AllowedDelay: 6 * time.Hour, FinishBy: at(12 * 3600),
		},
		{
			ID: "c", Submitted: at(0), Duration: 250 * time.Millisecond,
			Request:      sched.Resources{MilliCPU: 500, Memory: 512e6},
			AllowedDelay: workload.NoDelayGiven, FinishBy: at(86400),
		},
	}
	for name, form := range map[string]string{
		"plain":            text,
		"gzip":             pack(t, text),
		"byte order mark":  "\xef\xbb\xbf" + text,
		"carriage returns": strings.ReplaceAll(text, "\n", "\r\n"),
		"comments":         "# synthetic\n" + text,
		"blank lines":      strings.ReplaceAll(text, "\n", "\n\n"),
		"no last newline":  strings.TrimSuffix(text, "\n"),
		"gzip with mark":   pack(t, "\xef\xbb\xbf"+text),
	} {
		for _, format := range []string{"", "csv"} {
			got, err := read(write(t, form), format, t0)
			if err != nil {
				t.Errorf("%s, format %q: unexpected error: %v", name, format, err)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, format %q: unexpected jobs (-want +got):\n%s", name, format, diff)
			}
		}
	}
	short, err := read(write(t, "cpu,id,duration,submit_time\n1,a,60,0\n"), "", t0)
	if err != nil || len(short) != 1 || short[0].AllowedDelay != workload.NoDelayGiven {
		t.Errorf("unexpected result without the optional columns and in another order: %+v, %v", short, err)
	}
}

func TestReadECSched(t *testing.T) {
	want := []sched.Job{
		{
			ID: "1", Submitted: at(88), Duration: 34 * time.Second, AllowedDelay: workload.NoDelayGiven,
			Request: sched.Resources{MilliCPU: 7000, Memory: 1 << 30},
		},
		{
			ID: "2", Submitted: at(107), Duration: 22 * time.Second, AllowedDelay: workload.NoDelayGiven,
			Request: sched.Resources{MilliCPU: 1000, Memory: 2 << 30},
		},
	}
	for _, text := range []string{
		"1 88 34 7 1\n2 107 22 1 2\n", "1 88 34 7 1\r\n 2\t107  22 1 2",
		pack(t, "\xef\xbb\xbf1 88 34 7 1\n\n2 107 22 1 2\n"),
	} {
		for _, format := range []string{"", "ecsched"} {
			got, err := read(write(t, text), format, t0)
			if err != nil {
				t.Errorf("%q: unexpected error: %v", text, err)
			} else if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q: unexpected jobs (-want +got):\n%s", text, diff)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	const header = "id,submit_time,duration,cpu,memory,gpu,allowed_delay,deadline\n"
	row := func(fields string) string { return header + "ok,0,60,1,0,0,0,\n" + fields + "\n" }
	for name, c := range map[string]struct{ text, format, want string }{
		"empty file":         {"", "", "workload.csv: the file is empty"},
		"empty file, as CSV": {"", "csv", "workload.csv: the file is empty: want a header and rows"},
		"empty, as ECSched":  {"", "ecsched", "workload.csv: the file has no jobs"},
		"only a mark":        {"\xef\xbb\xbf", "", "workload.csv: the file is empty"},
		"header only":        {header, "", "workload.csv: the file has no jobs"},
		"unknown format":     {header, "ods", `unknown workload format "ods": have csv, ecsched`},
		"neither format": {
			"hello world\n", "",
			"neither a header nor a job of a known format: want csv, ecsched, swf",
		},
		"raw Alibaba":    {"M1,1,j_1,1,Terminated,419623,419624,100,0.3\n", "", "raw table of Alibaba's cluster-trace-v2018"},
		"raw Azure":      {"vmId,tenantId,vmTypeId,priority\n1,1,1,0\n", "", "Azure's public traces"},
		"raw Google":     {"time,type,collection_id,priority\n1,1,1,0\n", "", "Google's cluster traces, which are not supported"},
		"unknown":        {"a,b\n1,2\n", "", "a table of unknown format; want csv, ecsched, swf"},
		"missing column": {"id,submit_time,cpu\na,0,1\n", "", `workload.csv:1: column "duration" is missing`},
		"unknown column": {
			"id,submit_time,duration,cpu,colour\na,0,1,1,red\n", "",
			`workload.csv:1: unknown column "colour": have id,`,
		},
		"column twice": {
			"id,submit_time,duration,cpu,cpu\na,0,1,1,1\n", "",
			`workload.csv:1: duplicate column "cpu"`,
		},
		"truncated row":       {row("b,1,60"), "", "workload.csv:3: the row has 3 fields: want 8"},
		"too many fields":     {row("b,1,60,1,0,0,0,,"), "", "workload.csv:3: the row has 9 fields: want 8"},
		"open quote":          {row(`"b,1,60,1,0,0,0,`), "", "workload.csv:3: "},
		"duplicate ID":        {row("ok,1,60,1,0,0,0,"), "", `workload.csv:3: id: "ok" is used twice`},
		"empty ID":            {row(",1,60,1,0,0,0,"), "", "workload.csv:3: id: is empty"},
		"duration zero":       {row("b,1,0,1,0,0,0,"), "", `workload.csv:3: duration: "0" must be more than 0`},
		"duration tiny":       {row("b,1,1e-12,1,0,0,0,"), "", `workload.csv:3: duration: "1e-12" must be more than 0`},
		"duration negative":   {row("b,1,-5,1,0,0,0,"), "", `workload.csv:3: duration: "-5" is negative`},
		"duration negative h": {row("b,1,-5h,1,0,0,0,"), "", `workload.csv:3: duration: "-5h" is negative`},
		"duration NaN":        {row("b,1,NaN,1,0,0,0,"), "", `workload.csv:3: duration: "NaN" is not a finite number`},
		"duration infinite":   {row("b,1,1e999,1,0,0,0,"), "", `workload.csv:3: duration: "1e999" is not a finite number`},
		"duration an age": {
			row("b,1,1e12,1,0,0,0,"), "",
			"workload.csv:3: duration: \"1e12\" is more than a hundred years",
		},
		"duration words": {
			row("b,1,long,1,0,0,0,"), "",
			`workload.csv:3: duration: "long" is not a duration: want seconds, or a duration such as 90m`,
		},
		"submit empty":    {row("b,,60,1,0,0,0,"), "", "workload.csv:3: submit_time: "},
		"submit negative": {row("b,-1,60,1,0,0,0,"), "", `workload.csv:3: submit_time: "-1" is negative`},
		"submit before start": {
			row("b,2021-01-01T00:00:00Z,60,1,0,0,0,"), "",
			"workload.csv:3: submit_time: 2021-01-01T00:00:00Z is before the start",
		},
		"submit words": {
			row("b,yesterday,60,1,0,0,0,"), "",
			"workload.csv:3: submit_time: \"yesterday\": want seconds since",
		},
		"cpu NaN":      {row("b,1,60,nan,0,0,0,"), "", `workload.csv:3: cpu: "nan"`},
		"cpu negative": {row("b,1,60,-1,0,0,0,"), "", `workload.csv:3: cpu: "-1" is negative`},
		"cpu absurd": {
			row("b,1,60,1e18,0,0,0,"), "",
			"workload.csv:3: cpu: \"1e18\" is more than 1000000 cores",
		},
		"memory unit":     {row("b,1,60,1,4Qi,0,0,"), "", `workload.csv:3: memory: "4Qi": want bytes`},
		"memory negative": {row("b,1,60,1,-4Gi,0,0,"), "", `workload.csv:3: memory: "-4Gi" is negative`},
		"memory absurd": {
			row("b,1,60,1,1e30Gi,0,0,"), "",
			"workload.csv:3: memory: \"1e30Gi\" is more than any machine has",
		},
		"gpu fraction":   {row("b,1,60,1,0,0.5,0,"), "", `workload.csv:3: gpu: "0.5": want a whole number`},
		"delay negative": {row("b,1,60,1,0,0,-1,"), "", `workload.csv:3: allowed_delay: "-1" is negative`},
		"deadline too early": {
			row("b,100,60,1,0,0,0,50"), "",
			`workload.csv:3: deadline: "50" is not after the submission`,
		},
		"not really gzip": {"\x1f\x8bnonsense", "", "workload.csv: unpacking"},
		"truncated gzip":  {pack(t, header)[:20], "", "workload.csv: unpacking: unexpected EOF"},

		"ECSched truncated": {
			"1 0 5 1 1\n2 0 5 1\n", "",
			"workload.csv:2: the row has 4 fields: want 5, id, submit, duration, cpu, memory",
		},
		"ECSched duplicate": {"1 0 5 1 1\n1 0 5 1 1\n", "", `workload.csv:2: id: "1" is used twice`},
		"ECSched no time":   {"1 0 5 1 1\n2 0 0 1 1\n", "", `workload.csv:2: duration: "0" must be more than 0`},
		"ECSched NaN":       {"1 0 5 1 1\n2 NaN 5 1 1\n", "", `workload.csv:2: submit: "NaN" is not a finite number`},
		"ECSched negative": {
			"1 0 5 1 1\n2 0 5 -1 1\n", "",
			`workload.csv:2: cpu: "-1": want a whole number of slots`,
		},
		"ECSched half slot": {
			"1 0 5 1 1\n2 0 5 1 0.5\n", "",
			`workload.csv:2: memory: "0.5": want a whole number of slots`,
		},
		"ECSched and a word": {"1 0 5 1 1\n\n2 0 5 one 1\n", "", `workload.csv:3: cpu: "one" is not a finite number`},
	} {
		jobs, err := read(write(t, c.text), c.format, t0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
		if jobs != nil {
			t.Errorf("%s: Load() returned both %d jobs and an error", name, len(jobs))
		}
	}
	if _, err := read(filepath.Join(t.TempDir(), "none.csv"), "", t0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unexpected error for a missing file: %v", err)
	}
	var row3 *grid.RowError
	_, err := read(write(t, row("b,1,0,1,0,0,0,")), "", t0)
	if !errors.As(err, &row3) || row3.Line != 3 || row3.Field != "duration" {
		t.Errorf("expected a RowError with line 3 and field duration, got %v", err)
	}
}

func TestReadRealTraces(t *testing.T) {
	jobs, err := read(shared(t, "workload/ecsched/ecsched_input_9549jobs.txt.gz"), "", t0)
	if err != nil {
		t.Fatal(err)
	}
	var busy float64
	for i := range jobs {
		busy += jobs[i].Duration.Seconds() * float64(jobs[i].Request.MilliCPU) / 1000
	}
	if len(jobs) != 9549 || busy != 40465453 {
		t.Errorf("got %d jobs with %v slot-seconds, want 9549 with 40465453", len(jobs), busy)
	}
	small, err := read(shared(t, "workload/ecsched/ecsched_input_85jobs.txt"), "ecsched", t0)
	if err != nil || len(small) != 85 {
		t.Errorf("got %d jobs and error %v, want 85 jobs", len(small), err)
	}
}

func TestWriteCSVReadsBack(t *testing.T) {
	jobs := workloadtest.Demo(1, t0)
	jobs[2].Sites = []string{"oslo", "berlin"}
	jobs[3].Owner, jobs[4].Queue, jobs[5].Selector = "ann", "long", map[string]string{"a": "1", "b": "x,y"}
	jobs[0].FinishBy, jobs[1].AllowedDelay, jobs[2].Duration = at(1e6), workload.NoDelayGiven, 1234567*time.Microsecond
	var text bytes.Buffer
	if err := (&workload.Trace{Jobs: jobs}).WriteCSV(&text, t0); err != nil {
		t.Fatal(err)
	}
	back, err := read(write(t, text.String()), "", t0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(jobs, back); diff != "" {
		t.Errorf("result differs after reading it (-written +read):\n%s", diff)
	}
}

// A trace may contain the fraction of its cores that each job uses.
func TestUseOfCores(t *testing.T) {
	const header = "id,submit_time,duration,cpu,cpu_use\n"
	trace, err := workload.Load(write(t, header+"a,0,60,1,0.25\nb,1,60,1,\nc,2,60,1,0\nd,3,60,1,1\n"), "", t0)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{0.25, 1, 0, 1}
	if diff := cmp.Diff(want, trace.Use); diff != "" {
		t.Errorf("unexpected Use (-want +got):\n%s", diff)
	}
	var text bytes.Buffer
	if err := trace.WriteCSV(&text, t0); err != nil {
		t.Fatal(err)
	}
	back, err := workload.Load(write(t, text.String()), "", t0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(trace, back); diff != "" {
		t.Errorf("result differs after reading it (-written +read):\n%s", diff)
	}
	for _, wrong := range []string{"1.01", "-0.1", "NaN", "half"} {
		_, err := workload.Load(write(t, header+"a,0,60,1,"+wrong+"\n"), "", t0)
		if err == nil || !strings.Contains(err.Error(), "workload.csv:2: cpu_use: ") {
			t.Errorf("unexpected error for cpu_use %s: %v", wrong, err)
		}
	}
	silent, err := workload.Load(write(t, "id,submit_time,duration,cpu\na,0,60,1\n"), "", t0)
	if err != nil || silent.Use != nil {
		t.Errorf("unexpected result for a trace without cpu_use: %v, %v", silent, err)
	}
}

// For any input, a reader returns either valid jobs or an error.
func fuzzRead(f *testing.F, format string) {
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		options := workload.Options{Format: format, Start: t0}
		if format == "sacct" {
			options.Zone = "UTC"
		}
		trace, err := workload.LoadWith(write(t, string(text)), options)
		var jobs []sched.Job
		if trace != nil {
			jobs = trace.Jobs
		}
		if (err == nil) != (len(jobs) > 0) {
			t.Fatalf("Load() returned %d jobs and error %v", len(jobs), err)
		}
		seen := map[string]bool{}
		for _, j := range jobs {
			r := j.Request
			switch {
			case j.ID == "" || seen[j.ID]:
				t.Fatalf("ID %q is empty or duplicate", j.ID)
			case j.Duration <= 0 || j.Submitted.Before(t0) || r.MilliCPU < 0 || r.Memory < 0 || r.GPU < 0:
				t.Fatalf("invalid job %+v", j)
			case j.AllowedDelay < 0 && j.AllowedDelay != workload.NoDelayGiven:
				t.Fatalf("unexpected negative delay in %+v", j)
			}
			seen[j.ID] = true
		}
		options.SkipBad = true
		skipping, err := workload.LoadWith(write(t, string(text)), options)
		if len(jobs) > 0 && (err != nil || len(skipping.Jobs) != len(jobs)) || err == nil && len(skipping.Jobs) == 0 {
			t.Fatalf("got %d jobs, but when skipping invalid rows %+v and error %v", len(jobs), skipping, err)
		}
	})
}

func FuzzReadCSV(f *testing.F) {
	f.Add(
		[]byte(
			"id,submit_time,duration,cpu,memory,gpu,allowed_delay,deadline\na,0,60,1.5,4Gi,1,2h,2022-06-02T00:00:00Z\nb,1,1m,500m,,,,\n"))
	f.Add([]byte("\xef\xbb\xbfid,submit_time,duration,cpu\r\n\"a\"\"\",1e3,NaN,-0\r\n"))
	f.Add([]byte("# c\nid,submit_time,duration,cpu\n\"a,1"))
	fuzzRead(f, "csv")
}

func FuzzReadECSched(f *testing.F) {
	f.Add([]byte("1 88 34 7 1\n2 107 22 1 1\n"))
	f.Add([]byte("1 1e300 5 0x10 1\n\n# 2\n"))
	fuzzRead(f, "ecsched")
}

func read(path, format string, start time.Time) ([]sched.Job, error) {
	trace, err := workload.Load(path, format, start)
	if err != nil {
		return nil, err
	}
	return trace.Jobs, nil
}
