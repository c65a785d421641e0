// Package record sends the scheduler's decisions to the controller together with their inputs, so that every
// decision can be reproduced, for users who are surprised by it, and with other strategies in order to compare
// their costs.
//
// Recording never blocks decisions. The caller passes a copy and continues, while a single goroutine writes,
// compresses and sends the records. Pending data is bounded. If the controller is unavailable for a long time, the
// oldest records are dropped and counted.
package record
