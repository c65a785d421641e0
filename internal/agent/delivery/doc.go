// Package delivery brings attributed energy from a node to the controller, each joule once.
//
// The [Queue] collects attributions into numbered batches. It keeps them in memory and in the agent's state directory
// until the controller has acknowledged them. The [Pusher] sends them, the oldest first. docs/reference/protocol.md
// describes the protocol and its promises.
//
// The agent calls [Queue.Add] and [Queue.Save] once per tick, in this order. It stops doing so before it stops the
// pusher, which then sends the rest.
//
// # The state directory
//
//   - slot-0 and slot-1 are written in turns at each Save: the open batch and the agent's state of the same moment. If
//     the process dies while it writes one, the other is whole.
//   - batch-GENERATION-FIRST-LAST is a sealed batch. It is put in place by rename, whole or not at all.
//   - lock keeps a second agent out.
//
// Each record carries a CRC-32C. Nothing is flushed to the medium: the page cache survives the process, and a new boot
// begins a new stream anyway. After a power failure the directory may be older than what was delivered; the numbers of
// the batches then keep energy from being counted twice.
//
// # Invariants, and the test that holds each
//
//   - No energy is booked twice, whatever fails and whenever the agent is killed: TestExactness, TestKill.
//   - While the disk can be written, no energy is lost but that used while no agent could see it: TestExactness/disk.
//   - A batch that may have been sent does not change until it is acknowledged: the sink of the tests refuses it
//     otherwise (sinktest, Sink.compare).
//   - A slot is written only while all sealed batches are on disk; the newest batch file with a state stays until a
//     newer slot or file is there: TestExactness kills the agent between any two changes of the disk.
//   - The number of waiting batches and their bytes are bounded. Neighbours are folded, nothing is dropped:
//     TestSinkDownAnHour, TestFormerBatchesAreBounded.
//   - A tick allocates what opening a slot takes: TestSaveAllocatesLittle.
//   - The state directory of a former release is read: TestStateOfFormerAgents.
//
// # What fails how
//
//   - The disk is full or fails: metering and sending go on from memory, and [QueueStats] says so. Before a batch that
//     is not on disk is sent, a short mark overwrites a slot: the stream ends with the process. TestExactness/full and
//     TestExactness/dead.
//   - A batch file is damaged: it is renamed to damaged-…, named in the log, and its energy is lost; the rest goes on:
//     TestDamage. Both slots are damaged: a new stream begins: TestSlotsDamaged.
//   - A file cannot be removed: its batch is sent again and acknowledged as a duplicate: TestAcknowledgedFileStays.
//   - The power fails: batches that were acknowledged may come back: TestPowerFailure.
//   - The controller is away, busy, or refuses a batch: the pusher waits, longer each time; a stream whose oldest
//     batch is refused for good rests while others go on: TestFailures, TestRefusedStreamRests, TestPauseHolds.
package delivery
