package main

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A request to the counter: an add of a number, or a get (an add of 0 that is always answered).
type request struct {
	get    bool
	number int64
}

// What the caller learned: the sum, or nothing.
type answer struct {
	known bool
	sum   int64
}

// plainModel returns the counter as a sequential object: `add` returns the new sum, `get` returns the sum.
func plainModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			sum := state.(int64) + input.(request).number
			reply := output.(answer)
			return !reply.known || reply.sum == sum, sum
		},
		Hash: func(state any) uint64 { return uint64(state.(int64)) * 0x9E3779B97F4A7C15 },
		DescribeOperation: func(input, output any) string {
			return describe(input.(request), output.(answer))
		},
	}
}

// quickModel returns the same model, which also refuses steps after which the rest of the history cannot fit. Without
// this, the checker tries every subset of the adds with unknown outcome at every place.
//
// All numbers are positive, so the sum only rises, and an answered operation fits only where the sum is what its answer
// says: it begins there. Hence an add cannot take effect
//   - while another answered operation that begins at this sum has not taken effect;
//   - if it leads past the next sum at which an answered operation begins, or an answer is below 0;
//   - if its outcome is unknown and no other such adds can make up the rest of the way to that sum.
//
// With `far` the model refuses only adds with unknown outcome: then the longest order that it allows ends where the history
// goes wrong, and not where that can be foreseen.
func quickModel(history []porcupine.Operation, far bool) porcupine.Model {
	begins := map[int64]int{}
	unknown, pairs, least := map[int64]bool{}, map[int64]bool{}, int64(math.MaxInt64/4)
	for _, operation := range history {
		asked, reply := operation.Input.(request), operation.Output.(answer)
		if reply.known {
			begins[reply.sum-asked.number]++
		} else {
			unknown[asked.number] = true
			least = min(least, asked.number)
		}
	}
	for one := range unknown {
		for other := range unknown {
			pairs[one+other] = true
		}
	}
	sums := slices.Sorted(maps.Keys(begins))
	below := len(sums) > 0 && sums[0] < 0
	fits := func(sum, number int64, known bool) bool {
		next := nextAbove(sums, sum)
		rest := next - sum - number
		return !below && rest >= 0 &&
			(known || next == math.MaxInt64 || rest == 0 || unknown[rest] || pairs[rest] || rest >= 3*least)
	}
	model := plainModel()
	model.Init = func() any { return place{} }
	model.Step = func(state, input, output any) (bool, any) {
		at, asked, reply := state.(place), input.(request), output.(answer)
		waiting := begins[at.sum] - at.done
		sum := at.sum + asked.number
		switch {
		case reply.known && reply.sum != sum:
			return false, state
		case asked.get:
			return true, place{sum, at.done + 1}
		case reply.known:
			return far || waiting == 1 && fits(at.sum, asked.number, true), place{sum: sum}
		default:
			return waiting == 0 && fits(at.sum, asked.number, false), place{sum: sum}
		}
	}
	model.Hash = func(state any) uint64 { return uint64(state.(place).sum) * 0x9E3779B97F4A7C15 }
	model.DescribeState = func(state any) string { return fmt.Sprint(state.(place).sum) }
	return model
}

// The sum, and the number of answered gets that took effect at it.
type place struct {
	sum  int64
	done int
}

// nextAbove returns the least of the sorted sums that is greater than `sum`.
func nextAbove(sums []int64, sum int64) int64 {
	if index, _ := slices.BinarySearch(sums, sum+1); index < len(sums) {
		return sums[index]
	}
	return math.MaxInt64
}

func describe(asked request, reply answer) string {
	result := "unknown"
	if reply.known {
		result = fmt.Sprint(reply.sum)
	}
	if asked.get {
		return "get -> " + result
	}
	return fmt.Sprintf("add %d -> %s", asked.number, result)
}
