// Package access says who asks the central unit, and what they may be told.
//
// A [Gate] asks the API server: TokenReview for who holds a token, SubjectAccessReview for what they may do, on virtual
// resources of the group kubenergy.io. Rights are given with the roles that clusters have anyway. [HostTokens] are for
// agents on machines outside the cluster.
//
// What is refused is refused without a reason: which part of a token is wrong helps only those who guess. Tokens are
// in no log, no error and no cache; caches know them by their SHA-256.
//
// # While the API server is away
//
// People and programs are refused once what was cached about them is too old, with 503. Agents that were known
// shortly before go on being taken for [Options.Grace], as long as their token itself says that it is valid: it
// belongs to one node, what it may say of that node is held by the envelope, and nothing is booked twice. Other
// agents get 503 and keep what they have.
package access
