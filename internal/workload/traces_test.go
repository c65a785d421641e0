package workload_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const swfText = "; Version: 2.2\n" +
	";\n" +
	"    3        12 308483  30978   30  30978    -1   40  37980    -1  1   7   1  -1  2  1 -1 -1\n" +
	"    1        0 -1  60   30  552.21  1024   -1  -1    -1  -1   -1   -1  -1 -1  -1 -1 -1 ; a comment\n" +
	"   16   347726      5     -1    8 240379    -1    8 345600    -1 -1   5   1  -1 -1  1 -1 -1\n" +
	"   17   347727      5     0    8 240379    -1    8 345600    -1 5   5   1  -1 -1  1 -1 -1\n" +
	"   18   -1      5     9    8 240379    -1    8 345600    -1 5   5   1  -1 -1  1 -1 -1\n" +
	"   19   20      5     9    -1 240379    -1    0 345600    -1 5   5   1  -1 -1  1 -1 -1\n" +
	"   3   20      5     9    1 9    -1    1 345600    -1 3   5   1  -1 -1  1 -1 -1\n"

const alibabaText = "submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n" +
	"7448,73.597,0.5,0.25,9,23,67,0\n" +
	"539,116.382,20,0.1,1,1,2,0\n" +
	"540,5,1,0,1,2,16,0\n"

const openbText = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
	"p1,6000,12288,1,460,,LS,Running,427061,12902960,427062\n" +
	"p2,6000,12288,0,0,,LS,Pending,427061,12902960,\n" +
	"p3,6000,12288,0,0,,LS,Failed,427061,427061,427061\n" +
	"p4,6500,1,8,1000,V100M32|T4|T4,BE,Running,0,7,3\n" +
	"p5,6500,1,2,1000,T4,BE,Running,0,7,3\n"

const surfText = "id,submit_unix_ms,duration_ms,cpu_count,cpu_capacity_mhz_total,mem_capacity\n" +
	"2132819,1665093600000,2100000,16,33600,100000\n" +
	"2132820,1665093500000,1500,16,33600,100000\n"

func TestReadTraces(t *testing.T) {
	gib := int64(1 << 30)
	// 67 instances of half a core and a quarter of a machine's memory. At most four fit into the memory of a
	// machine.
	packed := make([]sched.Job, 17)
	for i := range packed {
		packed[i] = sched.Job{
			ID: fmt.Sprint("9-23-", i), Submitted: at(7448), Duration: 73597 * time.Millisecond,
			Request:      sched.Resources{MilliCPU: 2000, Memory: 4 * 96 * gib},
			AllowedDelay: workload.NoDelayGiven,
		}
	}
	packed[16].Request = sched.Resources{MilliCPU: 1500, Memory: 3 * 96 * gib}
	for name, c := range map[string]struct {
		text, format string
		jobs         []sched.Job
		skipped      []workload.Skipped
	}{
		"SWF": {swfText, "swf", []sched.Job{
			{
				ID: "1", Submitted: at(0), Duration: time.Minute,
				Request: sched.Resources{MilliCPU: 30000, Memory: 30 << 20}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "3", Submitted: at(12), Duration: 30978 * time.Second, Request: sched.Resources{MilliCPU: 40000},
				AllowedDelay: workload.NoDelayGiven, Owner: "7", Queue: "2", TimeLimit: 37980 * time.Second,
			},
		}, []workload.Skipped{
			{Why: "did not run or has no run time", Count: 2},
			{Why: "has no submission time", Count: 1},
			{Why: "has no number of processors", Count: 1},
			{Why: "is part of a job that is listed as a whole", Count: 1},
		}},
		"SWF with comments and waits": {
			"# converted\n3 1 -3 9 1 -1 -1 1 9 -1 1 5 1 -1 -1 1 -1 -1\n# end\n", "swf",
			[]sched.Job{{
				ID: "3", Submitted: t0.Add(time.Second), Duration: 9 * time.Second, AllowedDelay: workload.NoDelayGiven,
				Request: sched.Resources{MilliCPU: 1000}, TimeLimit: 9 * time.Second, Owner: "5",
			}}, nil,
		},
		"Alibaba": {alibabaText, "alibaba", append([]sched.Job{
			{
				ID: "1-1-0", Submitted: at(539), Duration: 116382 * time.Millisecond,
				Request: sched.Resources{MilliCPU: 20000, Memory: 41231686041}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "1-1-1", Submitted: at(539), Duration: 116382 * time.Millisecond,
				Request: sched.Resources{MilliCPU: 20000, Memory: 41231686041}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "1-2", Submitted: at(540), Duration: 5 * time.Second, Request: sched.Resources{MilliCPU: 16000},
				AllowedDelay: workload.NoDelayGiven,
			},
		}, packed...), nil},
		"openb": {openbText, "openb", []sched.Job{
			{
				ID: "p4", Submitted: at(0), Duration: 4 * time.Second,
				Request: sched.Resources{MilliCPU: 6500, Memory: 1 << 20, GPU: 8}, Queue: "BE",
				Selector: map[string]string{"gpu-model-of.T4_V100M32": "true"}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "p5", Submitted: at(0), Duration: 4 * time.Second,
				Request: sched.Resources{MilliCPU: 6500, Memory: 1 << 20, GPU: 2}, Queue: "BE",
				Selector: map[string]string{"gpu-model": "T4"}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "p1", Submitted: at(427061), Duration: (12902960 - 427062) * time.Second,
				Request: sched.Resources{MilliCPU: 6000, Memory: 12 * gib, GPU: 1}, Queue: "LS",
				AllowedDelay: workload.NoDelayGiven,
			},
		}, []workload.Skipped{{Why: "was never scheduled", Count: 1}, {Why: "has a run time of 0", Count: 1}}},
		"GAIA in seconds": {"arrival_time,length,cpus\n0.0,303.0,1\n68.0,7200.0,3\n", "gaia", []sched.Job{
			{
				ID: "1", Submitted: at(0), Duration: 303 * time.Second, Request: sched.Resources{MilliCPU: 1000},
				Queue: "short", AllowedDelay: 6 * time.Hour,
			},
			{
				ID: "2", Submitted: at(68), Duration: 2 * time.Hour, Request: sched.Resources{MilliCPU: 3000},
				Queue: "long", AllowedDelay: 24 * time.Hour,
			},
		}, nil},
		"GAIA in hours": {"arrival_time,length,cpus\n0.5,0.08361111111111111,1\n1,72,3\n", "gaia", []sched.Job{
			{
				ID: "1", Submitted: at(1800), Duration: 301 * time.Second, Request: sched.Resources{MilliCPU: 1000},
				Queue: "short", AllowedDelay: 6 * time.Hour,
			},
			{
				ID: "2", Submitted: at(3600), Duration: 72 * time.Hour, Request: sched.Resources{MilliCPU: 3000},
				Queue: "long", AllowedDelay: 24 * time.Hour,
			},
		}, nil},
		"SURF": {surfText, "surf", []sched.Job{
			{
				ID: "2132820", Submitted: time.UnixMilli(1665093500000).UTC(), Duration: 1500 * time.Millisecond,
				Request: sched.Resources{MilliCPU: 16000, Memory: 1e11}, AllowedDelay: workload.NoDelayGiven,
			},
			{
				ID: "2132819", Submitted: time.UnixMilli(1665093600000).UTC(), Duration: 35 * time.Minute,
				Request: sched.Resources{MilliCPU: 16000, Memory: 1e11}, AllowedDelay: workload.NoDelayGiven,
			},
		}, nil},
	} {
		for _, format := range []string{"", c.format} {
			got, err := workload.Load(write(t, c.text), format, t0)
			if err != nil {
				t.Errorf("%s, format %q: unexpected error: %v", name, format, err)
				continue
			}
			want := &workload.Trace{Format: c.format, Dated: c.format == "surf", Jobs: c.jobs, Skipped: c.skipped}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, format %q: unexpected trace (-want +got):\n%s", name, format, diff)
			}
		}
	}
}

func TestReadTracesRefuses(t *testing.T) {
	swf := func(row string) string { return swfText + row + "\n" }
	table := func(text, row string) string { return text + row + "\n" }
	const gaia = "arrival_time,length,cpus\n"
	for name, c := range map[string]struct{ text, format, want string }{
		"SWF too short": {swf("9 1 2 3"), "", "workload.csv:10: the row has 4 fields: want 18"},
		"SWF word": {
			swf("9 x 0 9 1 9 -1 1 9 -1 1 5 1 -1 -1 1 -1 -1"), "",
			`workload.csv:10: submit time: "x" is not a finite number`,
		},
		"SWF less than unknown": {
			swf("9 1 0 -2 1 9 -1 1 9 -1 1 5 1 -1 -1 1 -1 -1"), "",
			`workload.csv:10: run time: "-2" is negative: want -1`,
		},
		"SWF twice": {
			swf("3 1 0 9 1 9 -1 1 9 -1 1 5 1 -1 -1 1 -1 -1"), "",
			`workload.csv:10: job number: "3" is used twice`,
		},
		"SWF no number": {
			swf("-1 1 0 9 1 9 -1 1 9 -1 1 5 1 -1 -1 1 -1 -1"), "",
			"workload.csv:10: job number: is missing",
		},
		"SWF too large": {
			swf("9 1 0 9 1 9 -1 1e9 9 -1 1 5 1 -1 -1 1 -1 -1"), "",
			"workload.csv:10: requested processors: 1e+09 exceeds the maximum of 1000000",
		},
		"SWF memory": {
			swf("9 1 0 9 1 9 -1 1 9 1e18 1 5 1 -1 -1 1 -1 -1"), "",
			"workload.csv:10: requested memory: ",
		},
		"SWF of no runs": {
			"; x\n1 0 0 -1 1 9 -1 1 9 -1 5 5 1 -1 -1 1 -1 -1\n", "",
			"the file has no jobs to run: all rows were skipped: did not run or has no run time",
		},
		"SWF of comments": {"; x\n", "", "the file has no jobs"},
		"Alibaba instances": {
			table(alibabaText, "1,5,1,0,7,2,0,0"), "",
			`workload.csv:5: instances_num: "0": want a whole number, 1 to`,
		},
		"Alibaba memory": {
			table(alibabaText, "1,5,1,1.5,7,2,1,0"), "",
			`workload.csv:5: memory: "1.5" is more than the memory of a machine`,
		},
		"Alibaba twice": {
			table(alibabaText, "1,5,1,0,1,2,1,0"), "",
			`workload.csv:5: task_id: "1-2" is used twice`,
		},
		"Alibaba no time": {
			table(alibabaText, "1,0,1,0,7,2,1,0"), "",
			`workload.csv:5: duration: "0" must be more than 0`,
		},
		"Alibaba no job": {
			table(alibabaText, "1,5,1,0,,2,1,0"), "",
			`workload.csv:5: job_id: "": want a whole number`,
		},
		"openb memory": {
			table(openbText, "p9,1,x,1,0,,,,0,9,0"), "", `workload.csv:7: memory_mib: "x" is not a finite number`,
		},
		"openb share": {
			table(openbText, "p9,1,1,1,1001,,,,0,9,0"), "",
			`workload.csv:7: gpu_milli: "1001" exceeds 1000, which is one GPU`,
		},
		"openb share of none": {
			table(openbText, "p9,1,1,0,10,,,,0,9,0"), "",
			`workload.csv:7: gpu_milli: "10" is requested without a GPU`,
		},
		"openb back in time": {
			table(openbText, "p9,1,1,0,0,,,,5,9,4"), "",
			`workload.csv:7: scheduled_time: "4" is before the creation`,
		},
		"openb deleted early": {
			table(openbText, "p9,1,1,0,0,,,,5,7,8"), "",
			`workload.csv:7: deletion_time: "7" is before the scheduled time`,
		},
		"GAIA mixed": {gaia + "0,5,1\n1,4000,1\n", "", "workload.csv: the unit of the lengths is ambiguous: " +
			"want all lengths in hours (at most 72) or all in seconds (at least 300); specify the format gaia-hours or gaia-seconds"},
		"GAIA no length": {gaia + "0,5,1\n1,0,1\n", "", `workload.csv:3: length: "0" must be more than 0`},
		"GAIA too late": {
			gaia + "0,5,1\n1e9,1,1\n", "",
			`workload.csv:3: arrival_time: "1e9" is more than a hundred years`,
		},
		"GAIA no CPUs": {gaia + "0,5,\n", "", "workload.csv:2: cpus: "},
		"SURF too early": {
			table(surfText, "9,1000,5,16,1,1"), "",
			"workload.csv:4: submit_unix_ms: 1970-01-01T00:00:01Z is before the start",
		},
		"SURF duration": {
			table(surfText, "9,1665093600000,-5,16,1,1"), "",
			`workload.csv:4: duration_ms: "-5": want a whole number of milliseconds`,
		},
		"SURF twice": {
			table(surfText, "2132819,1665093600000,5,16,1,1"), "",
			`workload.csv:4: id: "2132819" is used twice`,
		},
		"selector": {
			"id,submit_time,duration,cpu,selector\na,0,1,1,gpu\n", "",
			`workload.csv:2: selector: "gpu": want key=value`,
		},
		"sites": {
			"id,submit_time,duration,cpu,sites\na,0,1,1,oslo;oslo\n", "",
			`workload.csv:2: sites: "oslo;oslo": want site;site, each once`,
		},
	} {
		got, err := workload.Load(write(t, c.text), c.format, t0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
		if got != nil {
			t.Errorf("%s: Load() returned both a trace and an error", name)
		}
	}
	hours, err := workload.Load(write(t, gaia+"0,5,1\n1,4000,1\n"), "gaia-seconds", t0)
	if err != nil || hours.Jobs[0].Duration != 5*time.Second {
		t.Errorf("unexpected result for a specified unit: %+v, %v", hours, err)
	}
}

// Only the first 18 columns of a log with additional columns are read. All rows must have the same number of
// columns.
func TestReadLongSWF(t *testing.T) {
	const row = "%d 1356996147 0 56011 64 1 1024 64 86400 1024 1 62 1 1 -1 1 1 1 {12,12} q_1d 1:ppn=64:x86_64#excl\n"
	text := fmt.Sprintf(row, 0) + fmt.Sprintf(row, 1)
	for _, format := range []string{"", "swf"} {
		got, err := workload.Load(write(t, text), format, t0)
		if err != nil || got.Format != "swf" || len(got.Jobs) != 2 || got.Jobs[1].Duration != 56011*time.Second ||
			got.Jobs[1].Request.MilliCPU != 64000 || got.Jobs[1].Owner != "62" {
			t.Errorf("format %q: unexpected result %+v, error %v", format, got, err)
		}
	}
	short := text + strings.TrimSuffix(fmt.Sprintf(row, 2), " 1:ppn=64:x86_64#excl\n") + "\n"
	if _, err := workload.Load(write(t, short), "", t0); err == nil ||
		!strings.Contains(err.Error(), "workload.csv:3: the row has 20 fields: want 21") {
		t.Errorf("unexpected error for a row with a missing column: %v", err)
	}
}

// Errors in a file that looks like a log refer to the SWF format, not to CSV.
func TestGuessExplainsSWF(t *testing.T) {
	for text, want := range map[string]string{
		"1 0 5 60 1 1 1 1 1 1 1 1 1 1 1 1 1\n": "workload.csv:1: the row has 17 fields: want 18, job number, submit time",
		"; a, b\n1 0 5 60 x\n":                 "workload.csv:2: the row has 5 fields: want 18",
		"1 0 5\n":                              "workload.csv:1: the row has 3 fields: want 5, id, submit",
	} {
		if _, err := workload.Load(write(t, text), "", t0); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "column") {
			t.Errorf("%q: expected an error that contains %[3]q, got %[2]v", text, err, want)
		}
	}
}

// If requested, invalid rows are skipped and counted, and the first one is reported.
func TestSkipBad(t *testing.T) {
	gaia := "arrival_time,length,cpus\n0,300,1\n"
	for name, c := range map[string]struct {
		text string
		ids  string // of the remaining jobs
		why  string // empty if an error is expected
		err  string
	}{
		"none is wrong": {"id,submit_time,duration,cpu\na,0,60,1\n", "a", "", ""},
		"one is absurd": {
			"id,submit_time,duration,cpu,cpu_use\na,0,60,1,0.5\nb,1,1e12,1,\nc,2,60,1,0.25\n", "a c",
			`1: invalid, the first one in line 3: duration: "1e12" is more than a hundred years`, "",
		},
		"several": {
			"id,submit_time,duration,cpu\na,0,60,1\nb,x,60,1\na,0,60,1\nc,0,60\nd,0,60,2\n", "a d",
			"3: invalid, the first one in line 3: submit_time: ", "",
		},
		"a log": {
			swfText + "   20   20      5     9    1e9 9    -1    1e9 345600    -1 5   5   1  -1 -1  1 -1 -1\n" +
				"   21   20      5     9    1 9    -1    1 345600    -1 5   5   1  -1 -1  1 -1 -1\n", "1 3 21",
			"1: invalid, the first one in line 10: requested processors: 1e+09 exceeds the maximum of", "",
		},
		"seconds, one of them out of range": {
			gaia + "1,1e300,1\n2,400,1\n", "1 2",
			`1: invalid, the first one in line 3: length: "1e300" is more than a hundred years`, "",
		},
		"a part of a task": {
			alibabaText + "1,5,1,7,7,2,300,0\n9000,5,1,0,7,3,1,0\n", "7-3",
			`1: invalid, the first one in line 5: memory: "7" is more than the memory of a machine`, "",
		},
		"all": {
			"id,submit_time,duration,cpu\na,0,0,1\n", "", "",
			`the file has no jobs to run: all rows were skipped: invalid, the first one in line 2: duration: "0" must be more than 0`,
		},
		"an unclosed quote": {
			"id,submit_time,duration,cpu\na,0,60,1\n\"b,0,60,1\nc,0,60,1\n", "", "", "workload.csv:3: ",
		},
		"a quote that spans rows": {
			"id,submit_time,duration,cpu\na,0,60,1\n\"b,0,60,1\nc\",0,60,x\n", "", "", "workload.csv:3: cpu: ",
		},
	} {
		got, err := workload.LoadWith(write(t, c.text), workload.Options{Start: t0, SkipBad: true})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var ids []string
		for i := range got.Jobs {
			ids = append(ids, got.Jobs[i].ID)
		}
		wrong := ""
		for _, s := range got.Skipped {
			if strings.HasPrefix(s.Why, "invalid") {
				wrong = fmt.Sprintf("%d: %s", s.Count, s.Why)
			}
		}
		if all := strings.Join(ids, " "); !strings.HasSuffix(all, c.ids) || !strings.HasPrefix(wrong, c.why) ||
			(c.why == "") != (wrong == "") || got.Use != nil && len(got.Use) != len(got.Jobs) {
			t.Errorf("%s: got jobs %s, skipped %q, want %s, %q", name, all, wrong, c.ids, c.why)
		}
		if _, err := workload.Load(write(t, c.text), "", t0); (err == nil) != (c.why == "") {
			t.Errorf("%s: unexpected error without SkipBad: %v", name, err)
		}
	}
}

// An unnamed first column contains row numbers.
func TestReadCountedRows(t *testing.T) {
	rows := strings.Split(strings.TrimSuffix(alibabaText, "\n"), "\n")
	for i := range rows {
		rows[i] = strings.TrimPrefix(fmt.Sprintf("%d,%s\n", i, rows[i]), "0") // the header has no number
	}
	counted := strings.Join(rows, "")
	want, err := workload.Load(write(t, alibabaText), "", t0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := workload.Load(write(t, counted), "", t0)
	if err != nil || !cmp.Equal(got.Jobs, want.Jobs) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if _, err := workload.Load(write(t, counted+"1,2\n"), "", t0); err == nil ||
		!strings.Contains(err.Error(), "the row has 2 fields: want 9, as in the header") {
		t.Errorf("unexpected error for a short row: %v", err)
	}
}

// The known properties of the real files: rows, skipped rows, and core-hours, which were computed independently of
// the readers.
func TestReadPublishedTraces(t *testing.T) {
	for _, c := range []struct {
		file, format string
		jobs         int
		skipped      string
		coreHours    float64
		owners       int
		gpus         int64
	}{
		{"swf/hpc2n_first3171.swf.gz", "swf", 3145, "25 did not run or has no run time", 139620.6, 17, 0},
		{
			"swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf", 18066, "173 did not run or has no run time", 131732.8,
			69,
			0,
		},
		{"alibaba_2018_batch_cloudsimpy.csv.gz", "alibaba", 128995, "", 31331.6, 1, 0},
		{
			"alibaba_openb_2023/openb_pod_list_default.csv.gz", "openb", 7255, "897 was never scheduled", 696260.4, 1,
			6571,
		},
		{
			"alibaba_openb_2023/openb_pod_list_cpu100.csv.gz", "openb", 6970, "883 was never scheduled", 693442.6, 1,
			6571,
		},
		{
			"alibaba_openb_2023/openb_pod_list_gpuspec33.csv.gz", "openb", 7255, "897 was never scheduled", 696260.4, 1,
			6571,
		},
		{"gaia/pai_1k.csv.gz", "gaia", 1000, "", 3192.6, 1, 0},
		{"gaia/pai-100k.csv.gz", "gaia", 99998, "", 1011245.9, 1, 0},
		{"gaia/azure-100k.csv.gz", "gaia", 99988, "", 1407948.0, 1, 0},
		{"surf_lisa_2022_week_tasks.csv.gz", "surf", 6295, "", 309796.7, 1, 0},
	} {
		if c.jobs > 20000 && os.Getenv("KUBENERGY_LONG") == "" {
			continue // large files take seconds
		}
		got, err := workload.Load(shared(t, "workload/"+c.file), "", t0)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		var busy float64
		var gpus int64
		owners := map[string]bool{}
		for i := range got.Jobs {
			j := &got.Jobs[i]
			busy += j.Duration.Hours() * float64(j.Request.MilliCPU) / 1000
			gpus += j.Request.GPU
			owners[j.Owner] = true
		}
		var why []string
		for _, s := range got.Skipped {
			why = append(why, fmt.Sprintf("%d %s", s.Count, s.Why))
		}
		skipped := strings.Join(why, ", ")
		if got.Format != c.format || len(got.Jobs) != c.jobs || skipped != c.skipped || len(owners) != c.owners {
			t.Errorf("%s: got format %s, %d jobs, skipped %q, %d owners, want %+v", c.file, got.Format, len(got.Jobs),
				skipped, len(owners), c)
		}
		if math.Abs(busy-c.coreHours) > 0.06 || gpus != c.gpus {
			t.Errorf("%s: got %.1f core-hours and %d GPUs, want %.1f and %d", c.file, busy, gpus, c.coreHours, c.gpus)
		}
		if !slices.IsSortedFunc(got.Jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) }) {
			t.Errorf("%s: jobs are not sorted by submission time", c.file)
		}
	}
}

func TestOpenBNodes(t *testing.T) {
	site := &sched.Site{Name: "here"}
	nodes, err := workload.Nodes(shared(t, "workload/alibaba_openb_2023/openb_node_list_all_node.csv.gz"), 0, site)
	if err != nil {
		t.Fatal(err)
	}
	var gpus, either int64
	v100 := sched.Job{Selector: map[string]string{"gpu-model-of.V100M16_V100M32": "true"}}
	for i := range nodes {
		gpus += nodes[i].Capacity.GPU
		if v100.Fits(&nodes[i]) {
			either++
		}
		if err := nodes[i].Profile.Validate(); err != nil {
			t.Errorf("%s: %v", nodes[i].Name, err)
		}
	}
	// 549·8 + 387·2 + 107·2 + 39·8 + 28·4 + 22·2 + 21·8 + 19 + 17·4 + 9·4 + 7·8 + 3 + 2·2 + 2 + 8 GPUs
	if len(nodes) != 1523 || gpus != 6212 || either != 28+21+19+9+7+1 {
		t.Errorf("got %d nodes with %d GPUs, %d with a V100, want 1523, 6212, 85", len(nodes), gpus, either)
	}
}

// The same for five synthetic rows.
func TestOpenBNodeRows(t *testing.T) {
	site := &sched.Site{Name: "here"}
	nodes, err := workload.Nodes("testdata/openb_nodes.csv", 0, site)
	if err != nil || len(nodes) != 5 {
		t.Fatalf("got %d nodes, error %v", len(nodes), err)
	}
	v100 := sched.Job{Selector: map[string]string{"gpu-model-of.V100M16_V100M32": "true"}}
	t4 := sched.Job{Selector: map[string]string{"gpu-model": "T4"}}
	for i, want := range []struct {
		gpus      int64
		v100, t4  bool
		idle, gpu energy.Watts
	}{
		{0, false, false, 32 * 0.74, 0},
		{8, true, false, 64 * 0.74, 300},
		{2, true, false, 64 * 0.74, 300},
		{0, false, false, 32 * 0.74, 0},
		{2, false, true, 96 * 0.74, 70},
	} {
		n := &nodes[i]
		if err := n.Profile.Validate(); err != nil {
			t.Errorf("%s: %v", n.Name, err)
		}
		if n.Capacity.GPU != want.gpus || v100.Fits(n) != want.v100 || t4.Fits(n) != want.t4 ||
			math.Abs(float64(n.Profile.Idle-want.idle)) > 1e-9 || n.Profile.GPUMax != want.gpu || n.Site != site {
			t.Errorf("node %s: got %+v with %+v, want %+v", n.Name, n, n.Profile, want)
		}
	}
	if nodes[0].Profile != nodes[3].Profile {
		t.Error("nodes of the same kind have different profiles")
	}
	for text, want := range map[string]string{
		"sn,cpu_milli,memory_mib,gpu,model\na,1000,1,1,H9000\n":         `workload.csv:2: model: unknown GPU "H9000"`,
		"sn,cpu_milli,memory_mib,gpu,model\na,1000,1,1,\n":              `workload.csv:2: model: unknown GPU ""`,
		"sn,cpu_milli,memory_mib,gpu,model\na,0,1,0,\n":                 `workload.csv:2: cpu_milli: "0" must be more than 0`,
		"sn,cpu_milli,memory_mib,gpu,model\na,1000,1,0,\na,1000,1,0,\n": `workload.csv:3: sn: "a" is used twice`,
		"sn,cpu_milli,memory_mib,gpu,model\n":                           "workload.csv: the file has no nodes",
	} {
		got, err := workload.Nodes(write(t, text), 0, site)
		if err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%q: got %d nodes and error %v, want an error that contains %q", text, len(got), err, want)
		}
	}
}

// The preset without limits has power proportional to its busy cores and no idle power.
func TestUnlimited(t *testing.T) {
	nodes, err := workload.Nodes("unlimited", 0, &sched.Site{})
	if err != nil || len(nodes) != 1 {
		t.Fatalf("got %d nodes, error %v", len(nodes), err)
	}
	n := nodes[0]
	if err := n.Profile.Validate(); err != nil {
		t.Error(err)
	}
	if p := n.Power(); p != 0 {
		t.Errorf("idle power = %v W, want 0", p)
	}
	for range 3 {
		n = n.Place(sched.Resources{MilliCPU: 250_500, Memory: 1 << 40})
	}
	if p := float64(n.Power()); math.Abs(p-3*250.5) > 1e-9 || n.Profile.WakeUp != 0 {
		t.Errorf("got %v W for 751.5 busy cores and a wake-up of %v J", p, n.Profile.WakeUp)
	}
}

func FuzzReadSWF(f *testing.F) {
	f.Add([]byte(swfText))
	f.Add([]byte("1 1e300 -1 1 1e6 -1 1 -1 -1 0x1p3 -1 1.5 -1 -1 2.0 -1 -1 -1\n"))
	fuzzRead(f, "swf")
}

func FuzzReadAlibaba(f *testing.F) {
	f.Add([]byte(alibabaText))
	fuzzRead(f, "alibaba")
}

func FuzzReadOpenB(f *testing.F) {
	f.Add([]byte(openbText))
	fuzzRead(f, "openb")
}

func FuzzReadGAIA(f *testing.F) {
	f.Add([]byte("arrival_time,length,cpus\n0.0,303.0,1\n68.0,7200.0,3\n"))
	f.Add([]byte("arrival_time,length,cpus\n0.5,1e-9,1\n1,72,0\n"))
	fuzzRead(f, "gaia")
}

func FuzzReadSURF(f *testing.F) {
	f.Add([]byte(surfText))
	fuzzRead(f, "surf")
}

func FuzzOpenBNodes(f *testing.F) {
	f.Add([]byte("sn,cpu_milli,memory_mib,gpu,model\na,1000,1,1,T4\nb,96000,393216,0,\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		nodes, err := workload.Nodes(write(t, "sn"+string(text)), 0, &sched.Site{})
		if (err == nil) != (len(nodes) > 0) {
			t.Fatalf("Nodes() returned %d nodes and error %v", len(nodes), err)
		}
		for i := range nodes {
			if nodes[i].Capacity.MilliCPU <= 0 || nodes[i].Profile.Validate() != nil {
				t.Fatalf("invalid node %+v", nodes[i])
			}
		}
	})
}
