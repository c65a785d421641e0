package hardware

import (
	"regexp"
	"slices"
	"strings"
)

// A model has many spellings: "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz" from the CPU, "Intel-Xeon-Gold-6148" from
// tools that convert it to a label. Names are normalized as follows and compared word by word. Only whole names
// match.

var (
	clock  = regexp.MustCompile(`^[0-9.]+[gm]hz$`)
	digits = regexp.MustCompile(`^[0-9]+$`)
	// Generations before "Core" and graphics after "Ryzen". "2660v2" becomes two words, in groups 1 and 2.
	trimmings = regexp.MustCompile(`^\d+th gen | with radeon.*|\b(\d{4}[a-z]{0,2})(v\d)\b`)
	slice     = regexp.MustCompile(`^[0-9]g\.[0-9]+gb$`) // of a GPU: compute slices and memory
)

// words returns the words of a name in lower case, without trademark signs.
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

// plus replaces the plus sign in labels, where it is invalid.
const plus = "plus"

func alphanumeric(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// cpuSpellings returns the spellings of a CPU: its name, and the name without the clock if it still contains a
// model. Without its clock, "Intel Xeon CPU @ 2.20GHz" would match any Xeon.
func cpuSpellings(name string) []string {
	var all, short []string
	w := words(trimmings.ReplaceAllString(strings.ToLower(name), "$1 $2"))
	for i, word := range w {
		switch {
		case word == "cpu" || word == "processor":
			continue
		case word == "core" && i > 0 && digits.MatchString(w[i-1]): // e.g. in "64-Core Processor"
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

// gpuSpellings returns the spellings of a GPU: its name without vendor and series, which are sometimes omitted.
func gpuSpellings(name string) []string {
	spelled, _, _ := readGPU(name)
	return []string{spelled}
}

// readGPU parses a product name of a driver or of GPU Feature Discovery, e.g.
// "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED". It returns the normalized name of the board, the number of sevenths in
// a partition (0 if not partitioned), and whether it is shared by time slicing.
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

// slug returns a name in the form of a DNS label.
func slug(name string) string {
	parts := strings.FieldsFunc(strings.Join(words(name), "-"), func(c rune) bool { return !alphanumeric(c) })
	return strings.Join(parts, "-")
}

// Spell returns the normalized name of a CPU used for comparisons.
func Spell(cpu string) string {
	all := cpuSpellings(cpu)
	return all[len(all)-1]
}
