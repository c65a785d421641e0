// Package access decides who makes a request to the controller, and what they may be told.
//
// A [Gate] asks the API server: TokenReview for who holds a token, SubjectAccessReview for what they may do, on virtual
// resources of the group kubenergy.io. Rights are given with the roles that clusters have anyway. [HostTokens] are for
// agents on machines outside the cluster.
//
// # Invariants, and the tests that hold them
//
//   - A refusal gives no reason: which part of a token is wrong helps only an attacker. Tokens are in no log, no error
//     and no cache; caches know them by their SHA-256 (TestRequire, TestNoTokenIsRemembered).
//   - An answer counts for a short time, and never longer than the token says it is valid
//     (TestAnswersCountForAWhile). Two users never share an answer (TestTwoUsersAreNotOne).
//   - A burst of requests with one token is one review (TestABurstIsOneReview); agents' tokens are reviewed ahead of
//     time, so that no agent waits (TestAgentsAreRenewed).
//   - An address that guesses tokens uses up its own reviews (TestGuesses), and locks out no token that was valid
//     before (TestGuessesLockNoAgentOut). Reviews are limited, apart for people and agents (TestReviewsAreLimited).
//
// # While the API server is away
//
// People and programs are refused with 503 once what was cached about them is too old. Agents that were known shortly
// before are let in for [Options.Grace], as long as their token itself says that it is valid: it belongs to one node,
// the envelope limits what it may say of that node, and nothing is booked twice. Other agents get 503 and keep what
// they have (TestTheAPIServerIsAway). A breaker keeps questions back meanwhile, but one odd question does not open it
// (TestAnOddQuestionStopsNoOther).
//
// The delegating authenticator and authorizer of k8s.io/apiserver have no such grace, no review ahead of time, no limit
// per address and no bound by the token's expiry; around them all of the Gate but one call would stay.
package access
