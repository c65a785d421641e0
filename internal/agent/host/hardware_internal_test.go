package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

func TestHardware(t *testing.T) {
	thread := func(processor, socket, core string) string {
		return "processor\t: " + processor + "\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6338 CPU @ " +
			"2.00GHz\nphysical id\t: " + socket + "\ncore id\t\t: " + core + "\nflags\t\t: fpu vme\n\n"
	}
	arm := func(part string) string {
		return strings.Repeat("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: "+part+"\n\n", 4)
	}
	many := strings.Repeat(" avx512", 200)
	for what, c := range map[string]struct {
		files map[string]string
		want  batch.Hardware
	}{
		"a server of two sockets": {
			files: map[string]string{
				"proc/cpuinfo": thread("0", "0", "0") + thread("1", "0", "1") + thread("2", "1", "0") +
					thread("3", "1", "1") + thread("4", "0", "0") + thread("5", "0", "1") + thread("6", "1", "0") +
					thread("7", "1", "1"),
				"proc/meminfo":                  "MemTotal:       263737912 kB\nMemFree:        1 kB\n",
				"sys/class/dmi/id/sys_vendor":   "Dell Inc.\n",
				"sys/class/dmi/id/product_name": "PowerEdge R750\n",
			},
			want: batch.Hardware{
				CPU: "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", Sockets: 2, Cores: 4, Threads: 8,
				Memory: 263737912 << 10, Vendor: "Dell Inc.", Product: "PowerEdge R750",
			},
		},
		"an instance of EC2": {
			files: map[string]string{
				"proc/cpuinfo":                "processor\t: 0\nmodel name\t: AMD EPYC 7R13\nflags\t\t: fpu" + many + " hypervisor\n",
				"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "c6a.large\n",
			},
			want: batch.Hardware{
				CPU: "AMD EPYC 7R13", Threads: 1, Virtual: true, Vendor: "Amazon EC2", Product: "c6a.large", Cloud: "aws",
				Instance: "c6a.large",
			},
		},
		"a whole machine of EC2": {
			files: map[string]string{
				"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "i3.metal\n",
			},
			want: batch.Hardware{Vendor: "Amazon EC2", Product: "i3.metal", Cloud: "aws", Instance: "i3.metal"},
		},
		"Google": {
			files: map[string]string{
				"proc/cpuinfo": arm("0xd0c"), "sys/class/dmi/id/sys_vendor": "Google\n",
				"sys/class/dmi/id/product_name": "Google Compute Engine\n",
			},
			want: batch.Hardware{
				CPU: "ARM Neoverse N1", Threads: 4, Virtual: true, Vendor: "Google", Product: "Google Compute Engine",
				Cloud: "gcp",
			},
		},
		"Azure, and not every Hyper-V": {
			files: map[string]string{
				"sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n", "sys/class/dmi/id/product_name": "Virtual Machine\n",
				"sys/class/dmi/id/chassis_asset_tag": azure + "\n",
			},
			want: batch.Hardware{
				Virtual: true, Vendor: "Microsoft Corporation", Product: "Virtual Machine", Cloud: "azure",
			},
		},
		"a board that is no PC": {
			files: map[string]string{
				"proc/cpuinfo": arm("0xd08"), "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00",
			},
			want: batch.Hardware{CPU: "Raspberry Pi 4 Model B", Threads: 4},
		},
		"the same in a container, of 32 bits": {
			files: map[string]string{
				"proc/cpuinfo": "processor\t: 0\nmodel name\t: ARMv7 Processor rev 3 (v7l)\n\nHardware\t: BCM2711\n" +
					"Model\t\t: Raspberry Pi 4 Model B Rev 1.1\n",
			},
			want: batch.Hardware{CPU: "Raspberry Pi 4 Model B", Threads: 1},
		},
		"GPUs": {
			files: map[string]string{
				"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\n",
				"proc/driver/nvidia/gpus/0000:02:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\n",
				"sys/bus/pci/devices/0000:03:00.0/product_name":    "AMD Instinct MI300X OAM\n",
				// without a driver, and integrated into a CPU
				"sys/bus/pci/devices/0000:04:00.0/class":        "0x030000\n",
				"sys/bus/pci/devices/0000:06:00.0/product_name": "\n",
			},
			want: batch.Hardware{GPUs: map[string]int{
				"NVIDIA H100 80GB HBM3": 2, "AMD Instinct MI300X OAM": 1,
			}},
		},
		"nothing, and nonsense": {
			files: map[string]string{
				"proc/cpuinfo": "model name\t: \x00\xff" + strings.Repeat("x", 99), "proc/meminfo": "MemTotal: much kB\n",
			},
			want: batch.Hardware{CPU: "\x00\xff" + strings.Repeat("x", 99)},
		},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c.want.GPUs == nil {
			c.want.GPUs = map[string]int{}
		}
		got := Hardware(filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
		if diff := cmp.Diff(&c.want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if sent := batch.EncodeHardware(got); sent == "" {
			t.Errorf("%s: it cannot be encoded", what)
		}
	}
	here := Hardware("/proc", "/sys")
	if here.Threads < 1 || here.Memory < 1<<20 {
		t.Errorf("this machine: %+v", here)
	}
}
