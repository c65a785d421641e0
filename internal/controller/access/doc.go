// Package access authenticates and authorizes requests to the controller.
//
// A [Gate] uses the TokenReview API to authenticate tokens and the SubjectAccessReview API to authorize their users
// on virtual resources of the API group kubenergy.io, so that access is granted with ordinary cluster roles.
// [HostTokens] authenticates agents on machines outside the cluster.
//
// # Invariants and the tests that verify them
//
//   - A rejection does not include a reason, because the reason would only help an attacker. Tokens are never logged,
//     included in errors or cached; caches use their SHA-256 digests as keys (TestRequire, TestNoTokenIsRemembered).
//   - Review results are cached for a short time and never beyond the expiry of the token
//     (TestAnswersCountForAWhile). Different users never share a cached result (TestTwoUsersAreNotOne).
//   - Concurrent requests with the same token cause a single review (TestABurstIsOneReview). The tokens of agents are
//     reviewed again before the cached result expires, so that agents do not wait (TestAgentsAreRenewed).
//   - A client address that guesses tokens exhausts only its own review quota (TestGuesses). It does not lock out
//     tokens that were valid before (TestGuessesLockNoAgentOut). Reviews are rate limited separately for people and
//     agents (TestReviewsAreLimited).
//
// # Behavior while the API server is unavailable
//
// Requests of people and programs are rejected with status 503 after their cached results have expired. Agents that
// were authenticated recently are still accepted for [Options.Grace] until their tokens expire. This is safe
// because an agent token belongs to a single node, the power envelope of the node limits the reported values, and
// no batch is recorded twice. Other agents receive status 503 and retain their data (TestTheAPIServerIsAway). A
// circuit breaker suppresses reviews during an outage, but a single rejected review does not open it
// (TestAnOddQuestionStopsNoOther).
//
// The delegating authenticator and authorizer of k8s.io/apiserver support neither such a grace period nor reviews
// in advance, a limit per client address or a limit by token expiry. Using them would replace only a single call of
// the Gate.
package access
