# zh:
# # 点积：两列数合不合拍
#
# 在计算机眼里，一个词就是一列数，叫**向量**。真正的模型用几百个数，谁也说不清每个数是什么意思。这里
# 只用三个，意思由我们自己定：是不是活物、有没有翅膀、是不是地点。
# en:
# # Dot products: do two lists of numbers agree?
#
# To a computer a word is a list of numbers, a **vector**. Real models use hundreds of them, and
# nobody can say what each one means. We take three and give them a meaning ourselves: is it alive,
# does it have wings, is it a place?

import numpy as np

from glasshead.attention.steps import scores

words = ["猫 cat", "蝶 butterfly", "园 park"]

#            alive wings place
cat = np.array([2.0, 0.0, 0.0])
butterfly = np.array([2.0, 2.0, 0.0])
park = np.array([0.0, 0.0, 2.0])

# zh:
# **点积**：对着的数两两相乘，再全部加起来。猫和蝴蝶：2×2 + 0×2 + 0×0 = 4。
#
# 两边都大的地方，乘出来才大；有一边是 0，这一项就没了。所以点积大，说明两列数“大在同样的地方”。
# en:
# The **dot product**: multiply the numbers pair by pair, then add everything up. Cat and butterfly:
# 2×2 + 0×2 + 0×0 = 4.
#
# Only where both are large does the product become large; a zero on either side wipes it out. So a
# large dot product says: these two are large in the same places.

products = cat * butterfly
print(products, "→", products.sum())

assert products.tolist() == [4, 0, 0]

# zh:
# 把所有词两两都算一遍，就是一张表。`scores` 正是注意力的第一步，这门课里会一直用到它。
#
# 公园那一行，除了自己全是 0：它和另外两个毫无共同之处。再看对角线：蝴蝶对自己得 8 分，猫对自己只有
# 4 分。蝴蝶并没有“更像自己”，它只是**更长**。
# en:
# All pairs at once make a table. `scores` is the first step of attention; it stays with us through
# this course.
#
# The row of the park is 0 except for itself: it has nothing in common with the other two. And look
# at the diagonal: the butterfly scores 8 with itself, the cat only 4. It is not more like itself.
# It is **longer**.

x = np.array([cat, butterfly, park])
table = scores(x, x)
for word, row in zip(words, table, strict=True):
    print(row, word)

assert table.tolist() == [[4, 4, 0], [4, 8, 0], [0, 0, 4]]

# zh:
# 长度就是对自己的点积开平方：猫 2，蝴蝶 2.83。把两边的长度都除掉，剩下的只看方向：猫和蝴蝶是 0.71，
# 也就是夹角 45°；和自己总是 1。
#
# 标准的注意力**不**除掉长度（有些新模型会除，叫 QK-norm）。一列数写得长一些，等于说话声音大一些：模
# 型正可以用它表示“这一点要紧”。
# en:
# The length is the square root of the dot product with itself: 2 for the cat, 2.83 for the
# butterfly. Divide both lengths out and only the direction is left: 0.71 between cat and butterfly,
# an angle of 45°; 1 with itself, always.
#
# Plain attention does **not** divide them out (some newer models do: QK-norm). A longer vector gets
# larger scores, and a model can use that to say: this matters.

length = np.sqrt(table.diagonal())
cosine = table / np.outer(length, length)
print("length", length.round(2))
print("cosine", cosine[0].round(2))
print("angle ", np.degrees(np.arccos(cosine[0, 1])).round())

assert length.round(2).tolist() == [2.0, 2.83, 2.0]
assert cosine[0].round(2).tolist() == [1.0, 0.71, 0.0]
assert np.allclose(cosine.diagonal(), 1)
assert round(np.degrees(np.arccos(cosine[0, 1]))) == 45

# zh:
# ## 问题也是一列数
#
# “谁是活的，又**没有**翅膀？”写成数就是 [1, −1, 0]：想要的写正，不想要的写负，不关心的写 0。拿这个
# 问题和每个词做点积，答案自己就浮上来了：猫 2 分，蝴蝶 0 分，公园 0 分。
#
# 注意力的全部秘密就在这里：**提问是一列数，找答案是点积。**
# en:
# ## A question is a vector too
#
# "Who is alive and has **no** wings?" is [1, −1, 0] in numbers: what we want is positive, what we
# don't want is negative, what we don't care about is 0. Take the dot product of the question with
# each word, and the answer gets the largest score: cat 2, butterfly 0, park 0.
#
# That is the whole secret of attention: **asking is a vector, finding is a dot product.**

wings = -1.0  # try: wings = 1.0
question = np.array([[1.0, wings, 0.0]])
answer = scores(question, x)[0]
for word, score in zip(words, answer, strict=True):
    print(f"{score:4.1f}  {word}")

if wings == -1.0:
    assert answer.tolist() == [2, 0, 0]
if wings == 1.0:
    assert answer.tolist() == [2, 4, 0]

# zh:
# ## 试一试
#
# 把 `wings = -1.0` 改成 `wings = 1.0`，问题就成了“谁是活的，又有翅膀？”先猜，再运行：猫还是 2 分，
# 蝴蝶升到 4 分，公园还是 0。
# en:
# ## Try it
#
# Change `wings = -1.0` to `wings = 1.0`, and the question becomes "who is alive and has wings?"
# Guess before you run it: the cat keeps its 2, the butterfly rises to 4, the park stays at 0.
