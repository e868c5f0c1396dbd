/* SPDX-License-Identifier: MIT
 *
 * The trainer's kernels, beside the library's: the double finds all by their names.
 */
#include "../../examples/ddp/layer_kernels.cu"
