package strategy_test

import (
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestUnknownStrategies checks that the error for an invalid name identifies the invalid part and suggests a
// similar name.
func TestUnknownStrategies(t *testing.T) {
	for name, want := range map[string]string{
		"greenest":   `unknown strategy "greenest": want one of balanced, `,
		"":           `unknown strategy "": want one of balanced, `,
		"x":          `unknown strategy "x": want one of balanced, `,
		"flow-enrgy": `unknown strategy "flow-enrgy" (did you mean flow-energy?): want one of balanced, `,
		"lowest-new": `unknown strategy "lowest-new" (did you mean lowest-now?): want one of balanced, `,
		// Equally similar to flow-dp and flow-ml.
		"flow-ex":                 `unknown strategy "flow-ex": want one of balanced, `,
		"Carbon":                  `unknown strategy "Carbon" (did you mean carbon?): want one of`,
		"carbn+window/fifo":       `unknown strategy "carbn+window/fifo" (did you mean carbon+window/fifo?): want one of`,
		"carbn+a\n\xff":           `unknown strategy "carbn+a\n\xff" (did you mean carbon+a\n\xff?): want one of`,
		"carbon+windwo":           `unknown strategy "carbon+windwo" (did you mean carbon+window?): after the + want one of capacity, carbon-scaler, `,
		"carbon+windwo/fifo":      `unknown strategy "carbon+windwo/fifo" (did you mean carbon+window/fifo?): after the + want one of`,
		"carbon+tomorrow":         `unknown strategy "carbon+tomorrow": after the + want one of`,
		"energy+now/fif":          `unknown strategy "energy+now/fif" (did you mean energy+now/fifo?): after the / want one of aging, `,
		"energy+now/":             `unknown strategy "energy+now/": after the / want one of aging, `,
		"energy/fifo":             `unknown strategy "energy/fifo": an order must follow a start rule: want energy+now/fifo`,
		"energy/first":            `unknown strategy "energy/first": want one of balanced, `,
		"flow-energy/fifo":        `unknown strategy "flow-energy/fifo": flow-energy decides on the whole queue and does not support an order`,
		"flow-energy+now/fifo":    `unknown strategy "flow-energy+now/fifo": flow-energy decides on the whole queue and does not support an order`,
		"cap(20-200):carbn+now":   `unknown strategy "carbn+now" (did you mean carbon+now?): want one of`,
		"cap(20-200):energy/fifo": `unknown strategy "energy/fifo": an order must follow a start rule: want energy+now/fifo`,
	} {
		if _, err := strategy.ByName(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error = %v, want prefix %s", name, err, want)
		}
	}
}
