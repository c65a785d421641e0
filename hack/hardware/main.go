// Program hardware generates tables.json in internal/hardware. The table contains the power of CPUs, estimated by a
// model of published SPECpower_ssj2008 results (see model.go), and the instance types of three cloud providers from
// Cloud Carbon Footprint (github.com/cloud-carbon-footprint/ccf-coefficients, Apache-2.0). The source tables do not
// contain the GPUs of instance types and the CPUs of some series. They are listed below according to the
// documentation of the providers.
//
// The program also builds a catalogue without the results of the last two years, compares its estimates with these
// results, prints the errors for each kind of profile and adds them to the table. It requires the source data next
// to the repository. tables.json is checked in because the data are usually not available.
package main

import (
	"compress/gzip"
	"encoding/csv"
	"io"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/hardware"
)

const data = "../../../shared/data/power"

const attribution = "Derived from SPECpower_ssj2008 results and instance tables of Cloud Carbon Footprint, " +
	"github.com/cloud-carbon-footprint/ccf-coefficients at b0032d92, Copyright Thoughtworks, Inc., Apache License 2.0, " +
	"and TDPs of CodeCarbon, github.com/mlco2/codecarbon at b05965e4, MIT License; rearranged, and extended as " +
	"hack/hardware says. Do not edit."

// cpuOf maps CPU names in the instance tables to architectures. The first matching pattern is used.
var cpuOf = []struct {
	pattern      *regexp.Regexp
	architecture string
}{
	{regexp.MustCompile(`Graviton2`), "AWS Graviton2"},
	{regexp.MustCompile(`Graviton3E`), "AWS Graviton3E"},
	{regexp.MustCompile(`Graviton3 `), "AWS Graviton3"},
	{regexp.MustCompile(`Graviton4`), "AWS Graviton4"},
	{regexp.MustCompile(`Granite Rapids`), "Intel Granite Rapids"},
	{regexp.MustCompile(`Emerald Rapids`), "Intel Emerald Rapids"},
	{regexp.MustCompile(`Sapphire Rapids`), "Intel Sapphire Rapids"},
	{regexp.MustCompile(`Ice Lake`), "Intel Ice Lake"},
	{regexp.MustCompile(`8259CL|8259L|8252C|8275CL|8280L|Cascade Lake`), "Intel Cascade Lake"},
	{regexp.MustCompile(`8175M|8124M|8176M|8151|P-8175`), "Intel Skylake"},
	{regexp.MustCompile(`E5-2686 v4`), "Intel Broadwell"},
	{regexp.MustCompile(`(?i)8880 ?v3|2666 v3|2676 v3`), "Intel Haswell"},
	{regexp.MustCompile(`(?i)2680 v2|2651 v2`), "Intel Ivy Bridge"},
	{regexp.MustCompile(`E5-2670$|E5-2665$`), "Intel Sandy Bridge"},
	{regexp.MustCompile(`EPYC 9R45|EPYC 9R05`), "AMD EPYC 5th Gen"},
	{regexp.MustCompile(`EPYC 9R14`), "AMD EPYC 4th Gen"},
	{regexp.MustCompile(`EPYC 7R13`), "AMD EPYC 3rd Gen"},
	{regexp.MustCompile(`EPYC 7R32`), "AMD EPYC 2nd Gen"},
	{regexp.MustCompile(`EPYC 7571`), "AMD EPYC 1st Gen"},
	{regexp.MustCompile(`Axion`), "Google Axion"},
	{regexp.MustCompile(`Ampere Altra`), "Ampere Altra"},
}

// azureSeries lists the architectures of series without a CPU in the Azure table, according to their documentation.
var azureSeries = []struct {
	pattern      *regexp.Regexp
	architecture string
}{
	{regexp.MustCompile(`^E\d+ v5$`), "Intel Ice Lake"},
	{regexp.MustCompile(`^NC\d+as T4 v3$`), "AMD EPYC 2nd Gen"},
	{regexp.MustCompile(`^NC\d+r?s v3$`), "Intel Broadwell"},
	{regexp.MustCompile(`^NC\d+r?s v2$`), "Intel Broadwell"},
	{regexp.MustCompile(`^ND40rs v2$`), "Intel Skylake"},
}

// azureSizes lists series that are missing in the Azure table, according to their documentation.
var azureSizes = []struct {
	names        []string // names of the size with 2 vCPUs, from which the other names are derived
	cpus         []int64
	gibPerCPU    float64
	architecture string
}{
	{[]string{"D2_v5", "D2s_v5", "D2d_v5", "D2ds_v5"}, []int64{2, 4, 8, 16, 32, 48, 64, 96}, 4, "Intel Ice Lake"},
	{[]string{"E2s_v5", "E2d_v5", "E2ds_v5"}, []int64{2, 4, 8, 16, 20, 32, 48, 64}, 8, "Intel Ice Lake"},
	{[]string{"D2as_v5", "D2ads_v5"}, []int64{2, 4, 8, 16, 32, 48, 64, 96}, 4, "AMD EPYC 3rd Gen"},
	{[]string{"E2as_v5", "E2ads_v5"}, []int64{2, 4, 8, 16, 20, 32, 48, 64}, 8, "AMD EPYC 3rd Gen"},
	{[]string{"D2s_v6", "D2ds_v6"}, []int64{2, 4, 8, 16, 32, 48, 64, 96, 128}, 4, "Intel Emerald Rapids"},
	{[]string{"E2s_v6", "E2ds_v6"}, []int64{2, 4, 8, 16, 20, 32, 48, 64}, 8, "Intel Emerald Rapids"},
	{[]string{"D2as_v6", "D2ads_v6"}, []int64{2, 4, 8, 16, 32, 48, 64, 96}, 4, "AMD EPYC 4th Gen"},
	{[]string{"E2as_v6", "E2ads_v6"}, []int64{2, 4, 8, 16, 20, 32, 48, 64}, 8, "AMD EPYC 4th Gen"},
}

// gpus lists the GPUs of instance types. Models are named as in hardware.yaml. "?" marks accelerators without
// published power, so these instance types are skipped.
var gpus = []struct {
	provider string
	pattern  *regexp.Regexp
	model    string
	count    int64 // 0 if the table contains the count
}{
	{"aws", regexp.MustCompile(`^p4de?\.24xlarge$`), "NVIDIA A100 SXM4", 8},
	{"aws", regexp.MustCompile(`^p5\.4xlarge$`), "NVIDIA H100 SXM", 1},
	{"aws", regexp.MustCompile(`^p5\.48xlarge$`), "NVIDIA H100 SXM", 8},
	{"aws", regexp.MustCompile(`^p5en?\.48xlarge$`), "NVIDIA H200 SXM", 8},
	{"aws", regexp.MustCompile(`^p6-b200\.48xlarge$`), "NVIDIA B200", 8},
	{"aws", regexp.MustCompile(`^p6-b300\.48xlarge$`), "NVIDIA B300", 8},
	{"aws", regexp.MustCompile(`^g4dn\.(xlarge|2xlarge|4xlarge|8xlarge|16xlarge)$`), "NVIDIA T4", 1},
	{"aws", regexp.MustCompile(`^g4dn\.12xlarge$`), "NVIDIA T4", 4},
	{"aws", regexp.MustCompile(`^g4dn\.metal$`), "NVIDIA T4", 8},
	{"aws", regexp.MustCompile(`^g5\.(xlarge|2xlarge|4xlarge|8xlarge|16xlarge)$`), "NVIDIA A10G", 1},
	{"aws", regexp.MustCompile(`^g5\.(12|24)xlarge$`), "NVIDIA A10G", 4},
	{"aws", regexp.MustCompile(`^g5\.48xlarge$`), "NVIDIA A10G", 8},
	{"aws", regexp.MustCompile(`^g6\.(xlarge|2xlarge|4xlarge|8xlarge|16xlarge)$`), "NVIDIA L4", 1},
	{"aws", regexp.MustCompile(`^g6\.(12|24)xlarge$`), "NVIDIA L4", 4},
	{"aws", regexp.MustCompile(`^g6\.48xlarge$`), "NVIDIA L4", 8},
	{"aws", regexp.MustCompile(`^g6e\.(xlarge|2xlarge|4xlarge|8xlarge|16xlarge)$`), "NVIDIA L40S", 1},
	{"aws", regexp.MustCompile(`^g6e\.(12|24)xlarge$`), "NVIDIA L40S", 4},
	{"aws", regexp.MustCompile(`^g6e\.48xlarge$`), "NVIDIA L40S", 8},
	{"aws", regexp.MustCompile(`^g7e\.(2|4|8)xlarge$`), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1},
	{"aws", regexp.MustCompile(`^g7e\.12xlarge$`), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 2},
	{"aws", regexp.MustCompile(`^g7e\.24xlarge$`), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 4},
	{"aws", regexp.MustCompile(`^g7e\.48xlarge$`), "NVIDIA RTX PRO 6000 Blackwell Server Edition", 8},
	{"aws", regexp.MustCompile(`^(p\d|g\d|inf|trn|dl|vt|f\d)`), "?", 0}, // all other types with accelerators
	{"gcp", regexp.MustCompile(`^a2-(highgpu|ultragpu)-1g$`), "NVIDIA A100 SXM4", 1},
	{"gcp", regexp.MustCompile(`^a2-(highgpu|ultragpu)-2g$`), "NVIDIA A100 SXM4", 2},
	{"gcp", regexp.MustCompile(`^a2-(highgpu|ultragpu)-4g$`), "NVIDIA A100 SXM4", 4},
	{"gcp", regexp.MustCompile(`^a2-(highgpu|ultragpu)-8g$`), "NVIDIA A100 SXM4", 8},
	{"gcp", regexp.MustCompile(`^a2-highgpu-16g$`), "NVIDIA A100 SXM4", 16},
	{"gcp", regexp.MustCompile(`^a3-highgpu-1g$`), "NVIDIA H100 SXM", 1},
	{"gcp", regexp.MustCompile(`^a3-highgpu-2g$`), "NVIDIA H100 SXM", 2},
	{"gcp", regexp.MustCompile(`^a3-highgpu-4g$`), "NVIDIA H100 SXM", 4},
	{"gcp", regexp.MustCompile(`^a3-(highgpu|megagpu|edgegpu)-8g$`), "NVIDIA H100 SXM", 8},
	{"gcp", regexp.MustCompile(`^a3-ultragpu-8g$`), "NVIDIA H200 SXM", 8},
	{"gcp", regexp.MustCompile(`^g2-standard-(4|8|12|16|32)$`), "NVIDIA L4", 1},
	{"gcp", regexp.MustCompile(`^g2-standard-24$`), "NVIDIA L4", 2},
	{"gcp", regexp.MustCompile(`^g2-standard-48$`), "NVIDIA L4", 4},
	{"gcp", regexp.MustCompile(`^g2-standard-96$`), "NVIDIA L4", 8},
	{"azure", regexp.MustCompile(`^NC\d+as T4 v3$`), "NVIDIA T4", 0},
	{"azure", regexp.MustCompile(`^NC\d+r?s v3$`), "NVIDIA V100 PCIe", 0},
	{"azure", regexp.MustCompile(`^NC\d+r?s v2$`), "NVIDIA P100 PCIe", 0},
	{"azure", regexp.MustCompile(`^ND40rs v2$`), "NVIDIA V100 SXM2", 0},
	{"azure", regexp.MustCompile(`^N[CDPV]`), "?", 0},
}

// instance is an instance type of a cloud provider.
type instance struct {
	provider, name string
	cpus           int64
	gib            float64
	architectures  []string // the provider may assign any of them
	gpu            string
	gpus           int64
}

func main() {
	log.SetFlags(0)
	if _, err := os.Stat(data); err != nil {
		log.Println("the source data are not available, tables.json was not changed:", err)
		return
	}
	results, tdps, machines := readResults(), readTDPs(), instances()
	newest := slices.MaxFunc(results, func(a, b hardware.Result) int { return a.Published.Compare(b.Published) }).Published
	var measured []*hardware.Errors // errors for the last iteration
	for _, years := range []int{6, 4, 2} {
		cut, end := newest.AddDate(-years, 0, 0), newest.AddDate(2-years, 0, 0)
		var old, late []hardware.Result
		for _, r := range results {
			switch {
			case !r.Published.After(cut):
				old = append(old, r)
			case !r.Published.After(end):
				late = append(late, r)
			}
		}
		log.Printf("fitted to %d results until %s, scored with %d results until %s", len(old), cut.Format("2006-01"),
			len(late), end.Format("2006-01"))
		measured = fit(old, tdps, cut).score(machines, late)
	}
	if err := write(fit(results, tdps, newest).tables(measured, machines)); err != nil {
		log.Fatal(err)
	}
}

func instances() (all []instance) {
	for _, i := range slices.Concat(aws(), gcp(), azure()) {
		known := true
		for _, g := range gpus {
			if plain := strings.ReplaceAll(strings.TrimPrefix(i.name, "Standard_"), "_",
				" "); g.provider == i.provider && g.pattern.MatchString(plain) {
				if known = g.model != "?"; known {
					i.gpu = g.model
					if g.count > 0 {
						i.gpus = g.count
					}
				}
				break
			}
		}
		if known && len(i.architectures) > 0 && (i.gpus > 0) == (i.gpu != "") {
			all = append(all, i)
		}
	}
	return all
}

func aws() (all []instance) {
	for _, r := range read("ccf/aws-instances-latest-2026.csv.gz") {
		all = append(all, instance{
			provider: "aws", name: r["Instance Type"], cpus: whole(r["vCPUs"]), gib: decimal(r["Memory (GiB)"]),
			architectures: known(r["Platform CPU Name"]),
		})
	}
	return slices.DeleteFunc(all, func(i instance) bool { return i.cpus == 0 })
}

func gcp() (all []instance) {
	for _, r := range read("ccf/gcp-instances-latest-2026.csv.gz") {
		architectures := known(r["CPU Name"])
		if m := r["Microarchitecture"]; len(architectures) == 0 && m != "" {
			architectures = []string{r["Manufacturer"] + " " + m}
		}
		all = append(all, instance{
			provider: "gcp", name: r["Instance Type"], cpus: whole(r["Instance vCPU"]), gib: decimal(r["Instance Memory"]),
			architectures: architectures,
		})
	}
	return slices.DeleteFunc(all, func(i instance) bool { return i.cpus == 0 })
}

// azure merges the rows of sizes that run on several CPU models. Sizes with constrained vCPUs, which have
// fractional counts, and large leased machines are skipped.
func azure() (all []instance) {
	footnote := regexp.MustCompile(` \d$`)
	index := map[string]int{}
	for _, r := range read("ccf/azure-instances.csv.gz") {
		size := footnote.ReplaceAllString(r["Virtual Machine"], "")
		if r["Series"] == "Constrained vCPUs capable" || strings.HasPrefix(r["Series"], "SAP HANA") ||
			strings.Contains(size, "-") {
			continue
		}
		name := "Standard_" + strings.ReplaceAll(size, " ", "_")
		i, seen := index[name]
		if !seen {
			i = len(all)
			index[name] = i
			all = append(all, instance{
				provider: "azure", name: name, cpus: whole(r["Instance vCPUs"]), gib: decimal(r["Instance Memory"]),
				gpus: whole(r["Instance GPUs"]),
			})
		}
		all[i].architectures = append(all[i].architectures, azureCPU(r["Microarchitecture"], size)...)
	}
	for _, s := range azureSizes {
		for _, name := range s.names {
			for _, n := range s.cpus {
				all = append(all, instance{
					provider: "azure", name: "Standard_" + strings.Replace(name, "2", strconv.FormatInt(n, 10), 1),
					cpus: n, gib: s.gibPerCPU * float64(n), architectures: []string{s.architecture},
				})
			}
		}
	}
	for i := range all {
		slices.Sort(all[i].architectures)
		all[i].architectures = slices.Compact(all[i].architectures)
	}
	return slices.DeleteFunc(all, func(i instance) bool { return i.cpus == 0 })
}

func azureCPU(microarchitecture, size string) []string {
	switch {
	case strings.HasPrefix(microarchitecture, "EPYC"):
		return []string{"AMD " + microarchitecture}
	case microarchitecture != "Unknown" && microarchitecture != "":
		return []string{"Intel " + microarchitecture}
	}
	for _, s := range azureSeries {
		if s.pattern.MatchString(size) {
			return []string{s.architecture}
		}
	}
	return nil
}

func known(cpu string) []string {
	for _, c := range cpuOf {
		if c.pattern.MatchString(cpu) {
			return []string{c.architecture}
		}
	}
	return nil
}

// read returns the rows of a table as maps from column names to values.
func read(name string) (rows []map[string]string) {
	file, err := os.Open(filepath.Join(data, name))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			log.Fatal(err)
		}
	}
	all, err := csv.NewReader(in).ReadAll()
	if err != nil {
		log.Fatalf("%s: %v", name, err)
	}
	for _, r := range all[1:] {
		row := map[string]string{}
		for i, column := range all[0] {
			row[column] = strings.TrimSpace(r[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// whole parses an integer count. It returns 0 if the text is empty or fractional.
func whole(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func decimal(text string) float64 {
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil {
		log.Fatalf("%q is not a number", text)
	}
	return v
}
