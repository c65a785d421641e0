// Package power sends machines to sleep that nothing needs, and wakes them: it carries out what sched/sleep decides. It
// never forces a machine off, and where it is in doubt it does nothing but wake.
package power
