// Package power puts unused machines to sleep and wakes them up, according to the decisions of package sched/sleep.
// It never powers off a machine by force. In case of doubt, it only wakes machines.
package power
