// Package delivery delivers attributed energy from a node to the controller exactly once.
//
// The [Queue] collects attributions into numbered batches. It keeps them in memory and in the agent's state
// directory until the controller has acknowledged them. The [Pusher] sends the batches, oldest first. The protocol
// and its guarantees are described in docs/reference/protocol.md.
//
// The agent calls [Queue.Add] and [Queue.Save] once per tick, in this order. It must stop calling them before it
// stops the pusher, which then sends the remaining batches.
//
// # State directory
//
//   - slot-0 and slot-1 are written alternately by Save. Each contains the open batch and the agent's state as of the
//     same time. If the process dies while writing one slot, the other one is intact.
//   - batch-GENERATION-FIRST-LAST contains a sealed batch. It is created atomically by a rename.
//   - lock prevents a second agent from using the directory.
//
// Each record has a CRC-32C checksum. Files are not synced to the storage device, because the page cache survives
// the process, and a new stream starts after a reboot anyway. After a power failure, the directory may be older
// than the delivered batches. In that case, the batch numbers ensure that energy is not counted twice.
//
// # Invariants and their tests
//
//   - Energy is never recorded twice, regardless of failures and of when the agent is killed: TestExactness, TestKill.
//   - While the disk is writable, no energy is lost except for energy used while no agent could observe it:
//     TestExactness/disk.
//   - A batch that may have been sent does not change until it is acknowledged. The sink of the tests rejects changed
//     batches (sinktest, Sink.compare).
//   - A slot is written only while all sealed batches are on disk. The newest batch file with a state is kept until a
//     newer slot or file exists. TestExactness kills the agent between any two changes of the disk.
//   - The number and size of pending batches are bounded. Adjacent batches are folded; no energy is dropped:
//     TestSinkDownAnHour, TestFormerBatchesAreBounded.
//   - A tick allocates only the memory needed to open a slot: TestSaveAllocatesLittle.
//
// # Failure handling
//
//   - The disk is full or fails: metering and sending continue from memory, and [QueueStats] reports the failure.
//     Before a batch that is not on disk is sent, a slot is overwritten with a short mark, so that the stream ends with
//     the process: TestExactness/full and TestExactness/dead.
//   - A batch file is damaged: it is logged, renamed to damaged-…, and its energy is lost. Other files are not
//     affected: TestDamage. If both slots are damaged, a new stream starts: TestSlotsDamaged.
//   - A file cannot be removed: its batch is sent again and acknowledged as a duplicate: TestAcknowledgedFileStays.
//   - The power fails: batches that were acknowledged may be sent again: TestPowerFailure.
//   - The controller is unreachable, overloaded, or rejects a batch: the pusher retries with exponential backoff. If
//     the oldest batch of a stream is rejected permanently, the stream is suspended while other streams continue:
//     TestFailures, TestRefusedStreamRests, TestPauseHolds.
package delivery
