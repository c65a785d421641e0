package hardware

import (
	"regexp"
	"slices"
	"strings"
)

// One model is spelled in many ways: "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz" by the CPU, "Intel-Xeon-Gold-6148" by
// tools that make a label of it. Names are compared word by word after this, and always as a whole: no name is part
// of another one.

var (
	clock  = regexp.MustCompile(`^[0-9.]+[gm]hz$`)
	digits = regexp.MustCompile(`^[0-9]+$`)
	// generations before "Core", graphics after "Ryzen"; "2660v2" becomes two words, and groups 1 and 2 keep them
	trimmings = regexp.MustCompile(`^\d+th gen | with radeon.*|\b(\d{4}[a-z]{0,2})(v\d)\b`)
	slice     = regexp.MustCompile(`^[0-9]g\.[0-9]+gb$`) // of a GPU: compute slices and memory
)

// words of a name, lower case, without trademarks.
func words(name string) []string {
	parts := func(c rune) bool { return !alphanumeric(c) && c != '.' && c != '+' }
	all := strings.FieldsFunc(strings.ToLower(name), parts)
	all = slices.DeleteFunc(all, func(w string) bool { return w == "r" || w == "tm" })
	if i := slices.Index(all, plus); i > 0 {
		all[i-1] += "+"
		all = slices.Delete(all, i, i+1)
	}
	return all
}

// plus stands for the sign in labels, which cannot have it.
const plus = "plus"

func alphanumeric(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// cpuSpellings returns what a CPU may be found under: its name, and the same without the clock if there is still a
// model in it. "Intel Xeon CPU @ 2.20GHz" without its clock would be any Xeon.
func cpuSpellings(name string) []string {
	var all, short []string
	w := words(trimmings.ReplaceAllString(strings.ToLower(name), "$1 $2"))
	for i, word := range w {
		switch {
		case word == "cpu" || word == "processor":
			continue
		case word == "core" && i > 0 && digits.MatchString(w[i-1]): // as in "64-Core Processor"
			all, short = all[:len(all)-1], short[:len(short)-1]
			continue
		case !clock.MatchString(word):
			short = append(short, word)
		}
		all = append(all, word)
	}
	spelled := []string{strings.Join(all, " ")}
	if len(short) < len(all) && slices.ContainsFunc(short,
		func(w string) bool { return strings.ContainsAny(w, "0123456789") }) {
		spelled = append(spelled, strings.Join(short, " "))
	}
	return spelled
}

// gpuSpellings returns what a GPU may be found under: its name without makers and series, which some leave out.
func gpuSpellings(name string) []string {
	spelled, _, _ := readGPU(name)
	return []string{spelled}
}

// readGPU reads a product name of a driver, or of GPU Feature Discovery: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED". It
// returns the spelling of the board, how many sevenths of it a partition has (0: it is not partitioned), and whether
// several users share it in time.
func readGPU(product string) (spelling string, sevenths int, shared bool) {
	w := words(product)
	if n := len(w); n > 1 && w[n-1] == "shared" {
		w, shared = w[:n-1], true
	}
	if n := len(w); n > 2 && w[n-2] == "mig" && slice.MatchString(w[n-1]) {
		sevenths = int(w[n-1][0] - '0')
		w = w[:n-2]
	}
	w = slices.DeleteFunc(w, func(word string) bool {
		return word == "nvidia" || word == "tesla" || word == "geforce" || word == "amd" || word == "instinct"
	})
	return strings.Join(w, " "), sevenths, shared
}

// slug is a name in the form of a DNS label.
func slug(name string) string {
	parts := strings.FieldsFunc(strings.Join(words(name), "-"), func(c rune) bool { return !alphanumeric(c) })
	return strings.Join(parts, "-")
}

// Spell returns the form in which names of CPUs are compared.
func Spell(cpu string) string {
	all := cpuSpellings(cpu)
	return all[len(all)-1]
}
