package derive

// What tells pauses apart from the spacing of tokens. Durations are counted in
// windows of half a doubling.
const (
	window    = perOctave / 2
	step      = perOctave / 8
	farApart  = 3 * perOctave // modes: eight times as long
	deviation = 4             // standard deviations by which a mode stands out
)

// parted finds a second population of gaps beyond the most frequent ones, and
// returns the bin where it begins. There has to be a mode at least eight times
// as long as the main one, and a valley between the two that is deeper than
// chance would make it.
func parted(h *Histogram) (bin int, two bool) {
	var counts [bins/step + 1]float64
	main := 0
	for i := range counts {
		counts[i] = float64(h.between(i*step, i*step+window))
		if counts[i] > counts[main] {
			main = i
		}
	}
	valley := main
	var best float64
	for i := main; i < len(counts); i++ {
		if counts[i] < counts[valley] {
			valley = i
		}
		if i-main < farApart/step {
			continue
		}
		// Both counts vary by the root of their size.
		depth := counts[i] - counts[valley]
		if z := depth * depth / (counts[i] + counts[valley]); depth > 0 && z > deviation*deviation && counts[i] > best {
			best = counts[i]
			bin = middleOfValley(counts[:], valley, i)*step + window/2
		}
	}
	return bin, best > 0
}

// middleOfValley returns the middle of the floor that begins at low.
func middleOfValley(counts []float64, low, end int) int {
	high := low
	for high+1 < end && counts[high+1] == counts[low] {
		high++
	}
	return (low + high) / 2
}
